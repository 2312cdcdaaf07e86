"""Tasks of the demo's worlds done by plan, and turns with known truth to measure judges on."""
