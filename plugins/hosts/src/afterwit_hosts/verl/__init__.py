"""A learner whose passes and optimiser's steps verl's FSDP2 engine makes; all else is the learner's own.

__main__   the command, and which of the learner's settings verl supports
trainer    the trainer over a policy in verl's engine
policy     that policy, and as a version's folder
update     one step of the optimiser by verl: its batch, and the objective as its loss
"""
