"""Turns of the store as other programs' training data: rows of JSON lines. Pure.

example         a judged turn to export, and why one is left out
demonstration   responses worth imitating, and what they are better than
trl             samples for TRL: KTO, self-distillation, or a loop of one's own over the sampled ids
verl            samples under the names of verl's batches
openpipe        conversations in OpenAI's chat format with OpenPipe's fields
sft, dpo        conversations to imitate, and pairs to prefer
atropos         scored groups of turns with one prompt
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from afterwit.exporting.example import Example, LeftOut
from afterwit.exporting.formats import atropos, dpo, openpipe, sft, trl, verl

__all__ = ["FORMATS", "WITH_IDS", "Example", "LeftOut"]

Rows = Callable[[Iterable[Example]], Iterator[Mapping[str, Any] | LeftOut]]
"""Examples, which may be iterated twice, to rows, and to what was left out with its reason."""

FORMATS: Mapping[str, Rows] = {
    "trl": trl.rows,
    "verl": verl.rows,
    "openpipe": openpipe.rows,
    "sft": sft.rows,
    "dpo": dpo.rows,
    "atropos": atropos.rows,
}

WITH_IDS = frozenset({"trl", "verl", "atropos"})
"""Formats whose rows hold token ids."""
