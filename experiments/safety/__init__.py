"""What promotion saves, and what it costs: the same runs with it and without it."""
