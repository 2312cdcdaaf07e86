"""The tools world: files in a sandbox, an owner's house rules, people who speak in text."""
