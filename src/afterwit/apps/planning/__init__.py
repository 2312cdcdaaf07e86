"""What sits on which card, and whether it fits, before anything starts.

settings        the section `placement`
model           a model's shape, by its name
memory          bytes of learner and engines
cards           those that are there, or that somebody names
contradictions  settings that do not go together
plan            each part's cards and memory; what does not fit is refused
servers         the servers' command lines
lines           the lines that start all of it, as text
report          the plan as text
"""
