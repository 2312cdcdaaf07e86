"""The environment that Atropos drives: its settings, servers of a model, task sets and metrics."""
