"""Other trainers that do a learner's work, a folder each. Nothing else in Afterwit imports them.

verl     its FSDP2 engine makes the learner's passes and steps
slime    a plugin, by which slime trains on a home's turns
"""
