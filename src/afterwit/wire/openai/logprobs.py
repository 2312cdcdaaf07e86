"""Log-probs of sampled tokens, and of the tokens that might have been: asked for, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.wire.fields import integer
from afterwit.wire.response import TokenLogprob

MOST_ALTERNATIVES = 20


def parse_top_logprobs(data: Mapping[str, Any]) -> int:
    """How many alternatives of each token are asked for. Raises RequestError 400."""
    return integer(data, "top_logprobs", low=0, high=MOST_ALTERNATIVES) or 0


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object for each token."""
    return [{**_object(token), "top_logprobs": list(map(_object, token.top))} for token in tokens]


def _object(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode())}
