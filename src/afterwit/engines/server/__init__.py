"""What engines on a server share. Such an engine is this room's `ServerEngine` over a `Server` of its own.

server     what a kind of server must be able to do: a protocol, which a new kind implements
client     HTTP to it: time-outs, a stream of events, and every fault as one of our errors
settings   where it is, and how long to wait for it; a kind's own settings extend these
fitness    whether a server that was found is fit for the model, and what it can do
open       from an address to an engine
engine     the engine port over a `Server`: requests outlive a swap, and a restart of the server
response   what a response has said, and what is left to ask for: pure
door       closed while the server is away or takes new weights; requests wait at it
watch      closes the door when the server is away, and opens it when it is back with the right weights
swaps      how new weights come in: as adapters beside each other, or whole, in place of each other
command    how a server is started that Afterwit runs itself

Nothing here imports torch.
"""
