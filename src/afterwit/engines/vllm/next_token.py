"""A response scored by what the server says next after each of its beginnings.

To tell the log-probs of a prompt's places vLLM reads it anew, past its cache, and makes a row for each place.
After a beginning of the response it makes one row, and its cache has all but the last block. So a short
response behind a long prompt costs a fraction of what the prompt does.

`logprob_token_ids` is not used: with vLLM 0.32's first model runner it spoils the likeliest ids that every
other request of its batch is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from afterwit.engines.server.gathered import gathered
from afterwit.engines.server.server import Place, place_of

CALL = 16
"""Tokens of a prompt that cost about what one such call costs."""
AT_ONCE = 8
"""Calls of one response at one time."""
BIAS = 100.0
"""The most that the server adds to a logit."""

Tell = Callable[[Sequence[int], dict[str, Any]], Awaitable[list[tuple[int, float]]]]
"""(ids, sampling parameters) -> what the server tells of the next id, the one that it says first."""


def pays(ids: Sequence[int], first: int) -> bool:
    """Whether the places of ids[first:] are so few beside what precedes them."""
    return CALL * (len(ids) - first) <= first


async def next_places(tell: Tell, ids: Sequence[int], *, first: int, top: int, raw: bool) -> list[Place]:
    """As `Server.places`. `raw`: log-probs are told as they are before a bias.

    The longest beginning comes first: the others' are in the server's cache then.
    """

    async def at(place: int) -> Place:
        token, begun = ids[place], ids[:place]
        told = await tell(begun, {"logprobs": top})
        if token not in dict(told):
            told = [*told, (token, await _biased(tell, begun, token, told[0], raw=raw))]
        return place_of(token, told, top)

    last = await at(len(ids) - 1)
    return [*await gathered([partial(at, place) for place in range(first, len(ids) - 1)], AT_ONCE), last]


async def _biased(
    tell: Tell, begun: Sequence[int], token: int, best: tuple[int, float], *, raw: bool
) -> float:
    """The log-prob of an unlikely id. Biased, it takes nearly all of the mass; what the likeliest one lost by
    that is the bias less what the id had: log p = l - l' - bias, as long as p * exp(bias) is far above 1."""
    told = dict(await tell(begun, {"logprobs": 2, "logit_bias": {str(token): BIAS}}))
    if raw:
        return told[token]
    return best[1] - told[best[0]] - BIAS
