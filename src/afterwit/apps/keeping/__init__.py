"""Keeping house: copies of a home, what takes room in it, a folder for other programs, the first start."""
