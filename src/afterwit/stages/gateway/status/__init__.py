"""What a gateway says of itself: models, health and metrics."""
