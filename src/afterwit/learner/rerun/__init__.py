"""What an update read, written down, and updates that are run again from it, to forget a session."""

from afterwit.learner.rerun.recipe import digest, recipe_of, settings_of
from afterwit.learner.rerun.rerun import Again, context_of, run_again

__all__ = ["Again", "context_of", "digest", "recipe_of", "run_again", "settings_of"]
