"""Metrics and traces for other programs."""
