"""The configuration: one tree of settings, merged from flags, environment, file and recipe."""

from afterwit.apps.config.load import Settings, home_of, known_names, load, store_settings, versions_settings
from afterwit.apps.config.sections import StoreSettings

__all__ = [
    "Settings",
    "StoreSettings",
    "home_of",
    "known_names",
    "load",
    "store_settings",
    "versions_settings",
]
