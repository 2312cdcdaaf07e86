"""A vLLM server."""
