"""How new weights come into a server.

port        what the engine needs of either way
adapters    beside each other: each version is an adapter with a name of its own
whole       in place of each other: all weights are read again
lease       the use of weights by one response, until they are taken away
proof       that the server serves the weights that it should
tensors     whether files hold weights of the model's names and shapes
"""
