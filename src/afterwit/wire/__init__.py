"""Foreign formats, each known by one module. Pure: no network, no clock, no torch."""
