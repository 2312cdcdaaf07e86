"""Versions earn the right to serve, and lose it again."""
