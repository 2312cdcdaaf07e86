"""A day with a given number of turns, on paper: what each part holds, does and costs, and what breaks first.

traffic    the day: how many turns, of which sessions, when
storing    what the store keeps, and what it and the gateway compute
learning   the learner's batches, updates and tokens
computing  the work of cards: tokens, operations, bytes
limits     how many turns a day each part bears
report     all of it as text
"""
