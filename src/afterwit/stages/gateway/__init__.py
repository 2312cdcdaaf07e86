"""The door: an OpenAI-compatible endpoint that records every turn before it lets go of its last event."""
