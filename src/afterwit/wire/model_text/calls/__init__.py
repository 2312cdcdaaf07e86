"""Calls as models write them: JSON, Python literals, and values without quotes that a schema types."""
