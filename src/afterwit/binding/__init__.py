"""Which session a request belongs to, which turn it follows, and that turn's next state. Pure."""
