"""The environment on the library of Atropos: the only folder here that imports it (extra `atropos`).

env        AgenticOPDEnv: what the library drives
config     its settings, by the published names
settings   the same as settings of Afterwit's parts
tasks      the table of task sets
player     rollouts on one server, scored, as a group
server     one APIServer over any engine
metrics    the published metrics; board: TensorBoard
command    `afterwit atropos serve|process|evaluate`
"""
