"""What trains and in which precision, and the frozen models beside it.

full, adapter       all weights, or LoRA on them
masters             the weights that the optimiser moves, in its precision
optimizer           AdamW and its state on disk
ema                 a teacher that follows the policy
sharded, mesh       full weights of which each process holds a part
state_files         the learner's state in a version's folder
frozen              the teacher and the reference
load                from a model folder to a module
"""

from afterwit.learner.parameters.adapter import Adapter
from afterwit.learner.parameters.ema import Ema
from afterwit.learner.parameters.frozen import FrozenModels
from afterwit.learner.parameters.full import FullWeights
from afterwit.learner.parameters.load import device_of, load_model
from afterwit.learner.parameters.masters import Masters

__all__ = ["Adapter", "Ema", "FrozenModels", "FullWeights", "Masters", "device_of", "load_model"]
