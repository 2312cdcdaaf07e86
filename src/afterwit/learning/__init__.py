"""Judged turns become updates, and updates become versions."""
