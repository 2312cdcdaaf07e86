"""The tools world: files in a sandbox, an owner with house rules."""
