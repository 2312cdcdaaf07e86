"""Turns as other programs' training data."""
