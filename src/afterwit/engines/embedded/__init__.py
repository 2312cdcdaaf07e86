"""The model in this process."""
