"""Token trees: rows with the same beginning run through a model as one sequence, each shared token once.

Axes in this folder: L tokens of a packed sequence, G query heads per key head, H key heads, E width of
a head, V vocabulary.
"""
