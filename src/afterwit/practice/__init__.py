"""Lessons: what corrections ask for in words, practised on fresh answers until it is learned."""
