"""The judge's prompts and the fences around what it is shown."""
