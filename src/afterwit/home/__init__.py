"""The home folder: its place, its model, its backup."""
