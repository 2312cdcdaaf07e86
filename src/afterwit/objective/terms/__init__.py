"""The terms of the loss, one file each."""
