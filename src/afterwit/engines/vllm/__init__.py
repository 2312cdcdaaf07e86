"""vLLM as the engine.

server     its wire: ids in, ids and log-probs out, adapters and whole weights
inspect    what a server that was found is and lacks
open       from an address to an engine
command    the command line that starts one with all that is asked for
worker     what its workers run for Afterwit, in the server's own Python
"""
