"""The learner: loads, scores, steps, and writes versions. `versions`, `manifest` and `rollback` need no
torch."""
