"""Isolation of commands that a model writes: files below one folder, commands with limits."""
