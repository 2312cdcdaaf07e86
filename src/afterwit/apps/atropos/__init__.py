"""The environment for Atropos: its tasks, its agent and its reward."""
