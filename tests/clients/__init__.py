"""Real agents and SDKs against the real gateway, whose model follows a script."""
