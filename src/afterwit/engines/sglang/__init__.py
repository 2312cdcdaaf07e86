"""SGLang as the engine.

server     its wire: ids in, ids and log-probs out, adapters and whole weights
asking     sampling settings as it takes them; reading: its answers; manner: what depends on its start
clean      a version's folder without what the server would take for weights
inspect    what a server that was found is and lacks
open       from an address to an engine
command    the command line that starts one with all that is asked for
"""
