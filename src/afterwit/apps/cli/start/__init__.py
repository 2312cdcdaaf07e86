"""Commands that start something."""
