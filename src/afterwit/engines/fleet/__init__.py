"""Several servers of one model."""
