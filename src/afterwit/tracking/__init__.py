"""What the store knows of each version, given to programs outside."""
