"""The terms of a chunk of rows, and their gradient in the place of its logits.

sparse  the terms that read a few ids of a row
dense   the terms that read its whole distribution, and the gradient of all terms
chunk   both together
"""
