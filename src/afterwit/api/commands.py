"""Options that commands share, for packages that add a command."""

from afterwit.cli.options import Config, Home, LearnerProcesses, Model, Recipe, Set, store_of

__all__ = ["Config", "Home", "LearnerProcesses", "Model", "Recipe", "Set", "store_of"]
