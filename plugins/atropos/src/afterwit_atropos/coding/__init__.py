"""Coding tasks: the agent with its tools, the tasks, and the exam of a solution."""
