"""What runs: the stages of `serve`, the learner's process, a server of our own, and their ends."""
