"""API keys: how they look and are kept, and who a caller is."""
