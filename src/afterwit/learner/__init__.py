"""The learner: judged turns go in, a new version of the weights comes out.

schedule     when an update starts and with which turns
announce     when that is, in words
behaviour    how a response was sampled
batch        judged samples become what an update scores
scoring      responses through a model
parameters   what trains, and the frozen models beside it
policy       model, master weights and optimiser
update       one step of the optimiser over one batch
ranks        several processes that share an update
suite        what a policy would say in the place of approved responses
trainer      an update becomes a version on disk
work         what an update costs, and what may be measured beside it
explain      what an update computes for one turn
failures     kinds of failure
placed       which of several processes this one is
settings     every setting with its default
"""
