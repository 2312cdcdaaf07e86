"""The demo's people and the system's own stages in one process, for experiments.

The gateway's application, the stages that judge, learn and publish, the store and the engine are those that
serve. Left out are sockets, child processes and waiting: people come one after another, and each meets a
model that has learned from all earlier conversations. The same plan gives the same run.
"""
