"""Log-probs of sampled tokens as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from afterwit.wire.response import TokenLogprob


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object for each token."""
    return [
        {
            "token": token.text,
            "logprob": token.logprob,
            "bytes": list(token.text.encode()),
            "top_logprobs": [],
        }
        for token in tokens
    ]
