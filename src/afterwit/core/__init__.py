"""The nouns and the decisions. Standard library only, no I/O, no clock, no randomness."""
