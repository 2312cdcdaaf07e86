"""Layer 4: configuration, construction, the commands, the demo. Only here are clocks and environment read."""
