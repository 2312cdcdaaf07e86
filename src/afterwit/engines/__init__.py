"""Engines sample tokens: one port, the table of engines, and a folder for each."""
