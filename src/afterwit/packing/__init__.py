"""Rows with a common prefix share its work."""
