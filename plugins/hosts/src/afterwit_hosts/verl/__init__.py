"""A learner whose passes and optimiser's steps verl's FSDP2 engine makes; all else is the learner's own.

settings   settings for verl, and which of the learner's settings it supports
engine     verl's engine with the learner's settings
batch      responses as a batch of verl's
loss       the objective as a loss function of verl's
step       one step of the optimiser by verl
policy     the policy in verl's engine, and as a version's folder
trainer    the trainer over such a policy
"""
