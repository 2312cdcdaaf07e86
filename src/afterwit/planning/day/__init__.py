"""A day with a given number of turns."""
