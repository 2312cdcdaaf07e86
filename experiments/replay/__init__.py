"""Traffic of agents with known truth, replayed, and how well each request found its place.

traffic    a request, the model's answer to it, and the truth about both
words      what people, models and tools say
clients    how each kind of agent behaves: generators of sessions of random structure
captures   recorded sessions of real clients, labelled by hand
identified with session ids of the client, or without
schedule   sessions alone, interleaved and as twins
hosts      what answers: the binder alone, or the gateway over HTTP
score      the confusion table
"""
