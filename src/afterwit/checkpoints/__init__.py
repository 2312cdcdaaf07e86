"""The folder of versions. Needs no torch."""
