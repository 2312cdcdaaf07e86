"""A model of a day with a given number of turns, with assumed traffic and cards."""
