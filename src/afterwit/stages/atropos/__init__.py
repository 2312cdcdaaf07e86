"""Training on the groups that Atropos environments send: a server gives them out, in batches.

settings    where the server is, and how patiently it is asked
server      its four HTTP calls
intake      a batch becomes the items of an update, and what is left out with its reasons
wire_objective   what a batch's rows let the objective learn from
stage       the loop: register, ask, train, commit
"""
