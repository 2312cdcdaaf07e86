"""Configuration, construction, the commands, the demo. Only here is the environment read."""
