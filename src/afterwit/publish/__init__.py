"""New versions go into the engine, and which of them does."""
