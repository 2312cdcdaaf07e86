"""Control tokens that somebody wrote into a conversation: they are read as text.

A chat template joins what people, tools and files say with the tokens that end a message and begin another.
In the joined text nobody can tell them apart: a page that a tool fetched could end its own message and speak
as the system. So such a token is marked before the template runs, and the mark is taken out when it is
tokenized as text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

MARK = "\ufdd0"
"""Behind the first character of a token that is text. Unicode has no such character."""


class Literal:
    """Marks the control tokens in values, and takes the marks out."""

    def __init__(self, tokens: Collection[str]) -> None:
        longer = [token for token in tokens if len(token) > 1]
        self._written = re.compile(_any_of(longer)) if longer else None
        self._marked = re.compile(_any_of(map(_with_mark, longer))) if longer else None

    def marked(self, value: Any) -> Any:
        """The JSON value with every control token in its strings marked, in names of fields too."""
        if isinstance(value, str):
            return value if self._written is None else self._written.sub(_mark, value)
        if isinstance(value, dict):
            return {self.marked(key): self.marked(held) for key, held in value.items()}
        return [self.marked(held) for held in value] if isinstance(value, list | tuple) else value

    def unmarked(self, text: str) -> str:
        """The text as it was written."""
        return text if self._marked is None else self._marked.sub(_without_mark, text)


def _with_mark(token: str) -> str:
    return token[0] + MARK + token[1:]


def _mark(found: re.Match[str]) -> str:
    return _with_mark(found[0])


def _without_mark(found: re.Match[str]) -> str:
    return found[0].replace(MARK, "", 1)


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of any of the texts, the longest that fits. A tree: a thousand tokens may begin alike."""
    heads: defaultdict[str, list[str]] = defaultdict(list)
    ends = False
    for text in texts:
        if text:
            heads[text[0]].append(text[1:])
        else:
            ends = True
    branches = [re.escape(head) + _any_of(tails) for head, tails in heads.items()]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + ("?" if ends else "")
