"""Metrics and traces for programs outside."""
