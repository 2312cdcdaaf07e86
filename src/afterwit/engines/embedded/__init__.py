"""The engine that runs the model in this process."""
