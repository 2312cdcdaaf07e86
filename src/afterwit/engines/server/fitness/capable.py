"""What an engine over a server can do, by the way in which new weights come."""

from __future__ import annotations

from afterwit.core.turn import Basis
from afterwit.engines.port import Capabilities
from afterwit.engines.server.settings import Swap

REMEDIES = {
    "adapters": 'set engine.swap = "adapters", or learner.lora_rank = 0',
    "whole_weights": 'set engine.swap = "whole", or learner.lora_rank above 0, such as 16',
    "base_weights": 'set engine.swap = "adapters" and learner.lora_rank above 0, or judge.weights = "live", '
    "or name another judge in judge.url",
    "constraint": "start the engine's server with a grammar library (SGLang: --grammar-backend llguidance)",
    "top_logprobs": "start the engine's server with a larger --max-logprobs",
}


MOST_ALTERNATIVES = 20
"""Alternatives of a token: clients may ask for no more."""


def capabilities(
    basis: Basis, context_length: int, scored_ids: int, swap: Swap | None, *, keeps_schemas: bool = False
) -> Capabilities:
    """`swap` is None if no new weights will come."""
    return Capabilities(
        basis=basis,
        base_weights=swap != "whole",
        forced_prefix=True,
        whole_weights=swap == "whole",
        adapters=swap == "adapters",
        own_adapters=swap == "adapters",
        constraint=keeps_schemas,
        top_logprobs=min(scored_ids, MOST_ALTERNATIVES),
        scored_ids=scored_ids,
        longest_probe=context_length - 1,
        remedies=REMEDIES,
    )
