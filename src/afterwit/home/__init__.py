"""The home folder: its files, its model, its backup."""
