"""What a hint may not be: too short, talk of hints, or the next state word for word.

A hint that speaks of hints teaches the policy to speak of them. A hint that quotes what came back teaches it
to presume what it could not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MIN_CHARS = 11
"""A hint needs more than ten characters."""

_GLUED_BEFORE = r"(?<![\w./-])"
_GLUED_AFTER = r"(?![\w/=(-]|\.\w)"
_COMPOUNDS = r"(?<!type )(?<!typing )(?<!query )(?<!index )(?<!resource )(?<!optimizer )"
_TALK = re.compile(
    rf"{_GLUED_BEFORE}{_COMPOUNDS}(?:hint(?:s|ed|ing)?|hindsight){_GLUED_AFTER}",
    re.IGNORECASE,
)
"""The words themselves. Part of an identifier (`type_hints`, `--hint`, `hint=`) or of a technical compound
("type hints", "query hint") they name a thing of the task."""

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+")
_IDEOGRAPH = re.compile(rf"[{_IDEOGRAPHS}]")
_EDGES = "\"'`.,;:!?()[]{}<>*\u201c\u201d\u2018\u2019\u2026\u3001\u3002\uff0c\uff01\uff1f"


def speaks_of_hints(hint: str) -> bool:
    """Whether the hint names hints or hindsight as such."""
    return _TALK.search(" ".join(hint.split())) is not None


def quotes(hint: str, said: Iterable[str], *, words: int) -> bool:
    """Whether the hint repeats `words` words in a row of what was said, or is a whole message of it.

    Case, white space and punctuation around words do not count; a path or an option is one word, so a quoted
    command stays below the limit. In scripts without spaces two characters count as a word.
    """
    own = _words(hint)
    runs = set(_runs(own, words))
    others = (_words(text) for text in said)
    return any(own == other or any(run in runs for run in _runs(other, words)) for other in others if other)


def _words(text: str) -> list[str]:
    stripped = (word.strip(_EDGES) for word in _WORD.findall(text.casefold()))
    return [word for word in stripped if word]


def _runs(words: list[str], limit: int) -> Iterator[tuple[str, ...]]:
    """From each word on, the shortest run that weighs `limit`. Two texts share a run of that weight if and
    only if they share one of these."""
    weights = [0.5 if _IDEOGRAPH.fullmatch(word) else 1.0 for word in words]
    end, weight = 0, 0.0
    for begin, own in enumerate(weights):
        while weight < limit and end < len(words):
            weight += weights[end]
            end += 1
        if weight < limit:
            return
        yield tuple(words[begin:end])
        weight -= own


def fault(hint: str, said: Iterable[str], *, quote_words: int) -> str | None:
    """Why the hint is rejected, in words; None where it may stand."""
    if len(hint.strip()) < MIN_CHARS:
        return f"hint shorter than {MIN_CHARS} characters"
    if speaks_of_hints(hint):
        return "hint speaks of hints"
    if quotes(hint, said, words=quote_words):
        return "hint quotes the next state"
    return None
