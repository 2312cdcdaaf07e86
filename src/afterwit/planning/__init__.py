"""What fits on which GPU, and the lines that start it."""
