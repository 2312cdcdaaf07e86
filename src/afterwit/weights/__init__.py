"""Models that share their weights."""
