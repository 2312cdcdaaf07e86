"""The tools world: files in a folder, an owner with house rules."""
