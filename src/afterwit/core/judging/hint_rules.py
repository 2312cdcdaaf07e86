"""What a hint may not be: too short, talk of hints, or the next state word for word.

A hint that speaks of hints teaches the policy to speak of them. A hint that quotes the next state teaches it
to presume what it could not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MIN_CHARS = 11
"""A hint needs more than ten characters."""

_TERM = re.compile(
    r"(?<![^\W_])(?:type|typing|query|index|join|lock|table|resource|optimi[sz]er|compiler|branch|planner"
    r"|size|length|font|early|prefetch|preload)[ _-]hint(?:s|ed|ing)?(?![^\W_])",
    re.IGNORECASE,
)
"""Programming terms that contain the word."""
_TALK = re.compile(r"(?<![^\W_])(?:hint(?:s|ed|ing)?|hindsight)(?![^\W_])", re.IGNORECASE)
"""The words, unless a letter or digit touches them."""
_FILE = re.compile(r"\.(?:py|pyi|js|ts|tsx|json|toml|ya?ml|md|txt|csv|sql|sh|rs|go|c|h|cpp|java|html|css)\Z")
_ASSIGNMENT = re.compile(r"[\w.]+=[^\s=]")

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+")
_IDEOGRAPH = re.compile(rf"[{_IDEOGRAPHS}]")
_EDGES = "\"'`.,;:!?()[]{}<>*\u201c\u201d\u2018\u2019\u2026\u3001\u3002\uff0c\uff01\uff1f"


def speaks_of_hints(hint: str) -> bool:
    """Whether the hint names hints or hindsight as such.

    Programming terms ("type hints"), paths, options (`--hint`) and assignments (`hint=3`) may hold
    the word.
    """
    words = " ".join(word for word in hint.split() if not _is_code(word.strip(_EDGES)))
    return _TALK.search(_TERM.sub(" ", words)) is not None


def _is_code(word: str) -> bool:
    """Whether a word is a path, a command-line option or an assignment."""
    path = word.startswith(("/", "./", "../", "~/")) or _FILE.search(word[-8:]) is not None
    return path or word.startswith("--") or _ASSIGNMENT.match(word) is not None


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
    """For each first word, the shortest run that weighs `limit`. Two texts share a run of that weight if and
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
    """Why the hint is rejected, in words; None if it is good."""
    if len(hint.strip()) < MIN_CHARS:
        return f"hint shorter than {MIN_CHARS} characters"
    if speaks_of_hints(hint):
        return "hint speaks of hints"
    if quotes(hint, said, words=quote_words):
        return "hint quotes the next state"
    return None
