"""The chat world: everyday questions, and a person who likes answers of a certain kind."""
