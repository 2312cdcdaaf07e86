"""Settings, for packages that read them or add a section of their own."""

from afterwit.config import Settings, home_of, load
from afterwit.home.model import model_folder
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.ranges import above, at_least, one_of_its_choices, within

__all__ = [
    "LearnerSettings",
    "ObjectiveSettings",
    "Settings",
    "above",
    "at_least",
    "home_of",
    "load",
    "model_folder",
    "one_of_its_choices",
    "within",
]
