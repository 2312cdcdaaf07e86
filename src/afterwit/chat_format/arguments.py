"""A call's arguments while the model writes them: the part that can be sent before the call ends.

It is the beginning of the arguments that the whole call will have, if it can be read. The last brace is held
back until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import NamedTuple

from afterwit.chat_format.calls import DEEPEST, Schemas, WrittenCall

LONGEST_HEAD = 1024
"""Characters before the arguments. A call with a longer head is read as a whole."""

MOST_LOOKS = 32
"""Marks within a call at which its parameters are read; each costs a reading of the whole call."""

LONGEST_PART = 64
"""Characters of an escape, number or word that may still be incomplete."""

Ahead = Generator[WrittenCall | None, str, None]
"""Reads a call piece by piece: the name and more of the arguments, or None if nothing new can be sent."""


class Head(NamedTuple):
    """The name of a call, and the place where the JSON object of its arguments begins."""

    name: str
    place: int


def head_of(pattern: str) -> Callable[[str], Head | None]:
    """Finds the head of a call that matches the pattern, whose last group is the name."""
    compiled = re.compile(pattern)

    def find(text: str) -> Head | None:
        found = compiled.match(text)
        return Head(found[found.lastindex or 0].strip(), found.end()) if found else None

    return find


def never_ahead(schemas: Schemas) -> Ahead:
    """For calls whose arguments are known only at their end."""
    while True:
        yield None


def json_ahead(head_of: Callable[[str], Head | None]) -> Callable[[Schemas], Ahead]:
    """For calls whose arguments are the text of a JSON object, unchanged, after a head."""

    def read(schemas: Schemas) -> Ahead:
        held, head = "", None
        while head is None and len(held) <= LONGEST_HEAD:
            held += yield None
            head = head_of(held[:LONGEST_HEAD])
        if head is not None and head.name in schemas:
            arguments, text = JsonBeginning(), held[head.place :]
            while not arguments.over:
                piece = arguments.push(text)
                text = yield WrittenCall(head.name, piece) if piece else None
        yield from never_ahead(schemas)

    return read


def marked_ahead(
    mark: str, begun: Callable[[str, Schemas], WrittenCall | None]
) -> Callable[[Schemas], Ahead]:
    """For calls whose arguments are in another notation, which is read up to each of its marks.

    `begun` returns the name and the beginning of the arguments of a call that is written up to a mark, or
    None if the mark is part of a value. Later results begin with the earlier ones.
    """

    def read(schemas: Schemas) -> Ahead:
        arguments, sent = JsonBeginning(), 0
        held, window = [""], ""
        found = None
        for _ in range(MOST_LOOKS):
            while (place := window.rfind(mark)) < 0:
                text = yield found
                found = None
                held.append(text)
                window = window[-len(mark) + 1 :] + text
            window = window[place + len(mark) :]
            held = ["".join(held)]
            call = begun(held[0][: len(held[0]) - len(window)], schemas)
            if call is not None and call.name in schemas:
                piece = arguments.push(call.arguments[sent:])
                sent = len(call.arguments)
                found = WrittenCall(call.name, piece) if piece else None
        yield found
        yield from never_ahead(schemas)

    return read


_SPACE = r"[ \t\n\r]+"
_SCALAR = r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?=[ \t\n\r,}\]])"
_CHARACTERS = (
    r'[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|u(?![dD][89abAB])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}))"
)
"""Half of a surrogate pair is read with the text after it: a pair is one character."""
_VALUE = rf'{_SPACE}|(?P<text>")|(?P<open>[{{[])|(?P<comma>{_SCALAR})'
_EXPECTED = {
    "object": re.compile(rf"{_SPACE}|(?P<open>\{{)"),
    "first_name": re.compile(rf'{_SPACE}|(?P<name_text>")|(?P<close>\}})'),
    "name": re.compile(rf'{_SPACE}|(?P<name_text>")'),
    "name_text": re.compile(rf'{_CHARACTERS}|(?P<colon>")'),
    "colon": re.compile(rf"{_SPACE}|(?P<value>:)"),
    "first_value": re.compile(rf"{_VALUE}|(?P<close>\])"),
    "value": re.compile(_VALUE),
    "text": re.compile(rf'{_CHARACTERS}|(?P<comma>")'),
    "comma": re.compile(rf"{_SPACE}|(?P<more>,)|(?P<close>[}}\]])"),
}
"""The next part of a JSON text in each state. A group names the state after it, but for three signs."""


class JsonBeginning:
    """Passes on the text of a JSON object, as far as it is one, without the brace that ends it.

    It reads each character a bounded number of times, and cuts no escape, number or word.
    """

    def __init__(self) -> None:
        self._rest = ""
        """Text that was not passed on."""
        self._within: list[str] = []
        """The closing brackets of the open objects and arrays."""
        self._state = "object"
        self.over = False
        """The object has ended, or the text is not one: nothing more is passed on."""

    def push(self, text: str) -> str:
        text, place = self._rest + text, 0
        while not self.over and (found := _EXPECTED[self._state].match(text, place)):
            match found.lastgroup:
                case None:
                    pass
                case "open":
                    self._within.append("}" if found[0] == "{" else "]")
                    self._state = "first_name" if found[0] == "{" else "first_value"
                    self.over = len(self._within) > DEEPEST
                case "close":
                    self.over = len(self._within) == 1 or self._within.pop() != found[0]
                    self._state = "comma"
                case "more":
                    self._state = "name" if self._within[-1] == "}" else "value"
                case state:
                    self._state = state
            if not self.over:
                place = found.end()
        self.over = self.over or len(text) - place > LONGEST_PART
        self._rest = text[place:]
        return text[:place]
