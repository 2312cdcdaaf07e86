"""Several servers of one model as one engine. A request goes where the beginning of its prompt was read.

conversations   which request goes on from which earlier one: pure
member          one server of the fleet: what it does now, and who of several takes a request: pure
agreed          whether servers serve the same model, and what all of them can do: pure
late            servers that were not there at the start join when they come
rolling         new weights, rolled through one server after another; a server that was away catches up
fleet           the engine port over all that
open            from addresses to a fleet

Nothing here imports torch.
"""
