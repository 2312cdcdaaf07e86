"""Whether a server that was found is fit for the model in a folder.

presence     waiting until it answers at all
facts        what the folder says about the model, and whether the server's model is that one
tokenizer    whether both cut a text into the same ids
basis        which distribution its log-probs are of
modules      the linear layers that an adapter may move
capable      what an engine over it can do, and what would give the rest
"""
