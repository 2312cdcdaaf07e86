"""The demo's people and the system's own parts in one process, for experiments.

The engine, the rendering, the reading of calls, the judge's prompts and tally, the store, the learner and the
publisher are those that serve. Left out are HTTP, sockets, child processes and waiting: people come one after
another, and each finds everything learned that was said before. The same plan gives the same run.
"""
