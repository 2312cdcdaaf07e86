"""Reading a response's text while it streams."""
