"""Benchmarks of each part, as ratios against a floor and a peer. One question a file; never a test.

__main__   run the questions, each in a process of its own
measure    rows with targets; variants in turn, noisy runs thrown away
asked      on what: device, shapes, how large, how often
results    the table at the end, and JSON with commit and machine
page       docs/benchmarks.md, from a kept JSON

loss, scoring, peers       the head (L, S), and the same for TRL and Liger-Kernel
packing, attention, exact  shared prefixes (P)
update                     one whole update against the published way (E)
segments, lora             turns that wait for each other; an adapter against full weights
load                       more turns than the learner has time for
engine, prompts            sampling, and prompts with a common prefix (X)
agents, gateway            serving (G)
proxy, through             serving beside LiteLLM's proxy, and in front of a model server
store                      recording (D)

The others make what these measure: models, sessions, head_work, peer_ways, plain_loop, agent_text,
recorded_alone, gateway_servers, gateway_load, quick_engine, plain_servers, paced_server, litellm.
"""
