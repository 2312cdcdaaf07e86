"""A small world that really learns: tasks, simulated people, a base model and the measuring of both."""
