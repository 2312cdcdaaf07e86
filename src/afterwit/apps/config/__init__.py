"""The configuration: one tree of settings, merged from flags, environment, file and recipe."""

from afterwit.apps.config.load import Settings, home_of, known_names, load

__all__ = ["Settings", "home_of", "known_names", "load"]
