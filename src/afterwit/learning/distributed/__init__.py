"""Several processes that share an update."""
