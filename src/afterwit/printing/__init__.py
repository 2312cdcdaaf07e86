"""The answers of commands on a terminal."""
