"""Rows that begin alike share the work of their beginnings."""
