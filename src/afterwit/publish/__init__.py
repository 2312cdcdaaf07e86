"""Loads new versions into the engine."""
