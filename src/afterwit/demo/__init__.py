"""The live demo: tasks, simulated people, a small base model, and the measurements."""
