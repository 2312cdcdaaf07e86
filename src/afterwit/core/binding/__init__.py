"""Which session a request belongs to, which turn it follows, and what it says about that turn."""
