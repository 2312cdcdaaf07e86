"""Layer 4: configuration, wiring, the commands, the demo. Only here clocks and the environment are read."""
