"""The chat world: everyday questions about a person's notes, and how that person likes an answer."""
