"""How each kind of agent behaves: generators of sessions of random structure.

traits     what distinguishes one kind from another
echo       how each sends its history back
client     tasks, tool calls, retries, edits
session    a whole session, with its auxiliary requests
known      the kinds that the binding was made with
unseen     kinds that it was not made with: they only measure
"""
