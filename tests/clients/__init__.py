"""Real agents and SDKs against the real gateway, whose model says what a script tells it."""
