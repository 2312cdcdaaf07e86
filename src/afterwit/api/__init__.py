"""The names that other packages may import: a module for each thing that they build."""
