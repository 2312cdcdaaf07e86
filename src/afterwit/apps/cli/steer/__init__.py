"""Commands that steer what is learned, and take it back."""
