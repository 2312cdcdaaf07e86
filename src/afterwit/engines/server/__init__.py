"""What engines on a server share. Such an engine is this room's `ServerEngine` over a `Server` of its own.

server     what a kind of server must be able to do: a protocol of seven methods, which a new kind implements
client     HTTP to it: time-outs, a stream of events, and every fault as one of our errors
settings   where it is, and how long to wait for it; a kind's own settings extend these
engine     the engine port over a `Server`: requests outlive a swap, and a restart of the server
response   what a response has said, and what is left to ask for: pure
door       closed while the server is away or takes new weights; requests wait at it
swaps      how new weights come in: `adapters`, beside each other, or `whole`, in place of each other
presence   waiting until it answers at all
facts      what the local model folder says, and whether the server's model is that one
launch     a server that Afterwit starts itself: its command, its log, its restarts

Nothing here imports torch.
"""
