"""What came of one step of a response: its next id, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.sample import Draw, Drawn, draw

Outcome = Drawn | EngineError


def outcomes(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Outcome]:
    """Each row's next id, or an error if its log-prob is not finite."""
    return [
        drawn if math.isfinite(drawn.logprob) else EngineError("The model's logits are not finite.")
        for drawn in draw(logits_BV, draws)
    ]


def failure_of(error: Exception) -> EngineError:
    """The error as an EngineError, with its cause."""
    failure = EngineError(f"The model could not go on with this response: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
