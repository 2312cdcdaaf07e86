"""Floor 4: configuration, wiring, the commands, the demo. The only floor that reads clocks and the environment."""
