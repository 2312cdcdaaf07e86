"""Serves the model to clients, and records every turn before its last event is sent."""
