"""Binding: the session of a request, its parent turn, and the parent's next state. Pure."""
