"""Which versions may serve, and which are taken back."""
