"""Tool calls that are written as elements: `<function=name><parameter=key>value</parameter></function>`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from afterwit.chat_format.arguments import marked_ahead
from afterwit.chat_format.calls import Schemas, WrittenCall, object_of, properties_of, written

_PARAMETER_END = "</parameter>"
_ELEMENT_NAME = re.compile(r"[^\s<>{}\"]+")


class Elements:
    """Reads one notation. `call` and `parameter` are the first tags up to the name, and `sign` follows the
    name; `end` is the last tag of a call. With `lines`, each value is on its own lines."""

    def __init__(self, call: str, parameter: str, sign: str, end: str, *, lines: bool) -> None:
        self._call, self._parameter, self._sign, self._end = call, parameter, sign, end
        followed = rf"(?=\s*(?:{parameter}|{end}|\Z))"
        self._begin = re.compile(rf"\s*{parameter}([^<>\n]+){sign}")
        self._line = re.compile(rf"\n[ \t]*{parameter}([^<>\n]+){sign}\n?")
        self._line_end = re.compile(rf"\n{_PARAMETER_END}{followed}")
        self._any_end = re.compile((r"\n?" if lines else "") + _PARAMETER_END + followed)
        self._lines = lines
        self.ahead = marked_ahead(parameter, self._begun)

    def read(self, text: str, schemas: Schemas) -> list[WrittenCall]:
        """The call that a text is; empty if it is anything else."""
        name, named, rest = text.strip().removeprefix(self._call).partition(self._sign)
        values, after = self._parameters(rest)
        ends = after is not None and after.strip() in ("", self._end)
        if not (named and ends and _ELEMENT_NAME.fullmatch(name)):
            return []
        schema = schemas.get(name)
        return written(name, object_of(self._divided(values, properties_of(schema)), schema))

    def in_value(self, text: str) -> bool:
        """Whether the text of a call stops inside a parameter's value."""
        return self._parameters(text.partition(self._sign)[2])[1] is None

    def is_whole(self, text: str) -> bool:
        """Whether the text of a call has its last tag."""
        return text.rstrip().endswith(self._end)

    def _begun(self, text: str, schemas: Schemas) -> WrittenCall | None:
        name, _, rest = text.strip().removeprefix(self._call).partition(self._sign)
        values, after = self._parameters(rest)
        held = any(self._parameter in value for _, value in values)
        if after is None or after.strip() != self._parameter or held:
            return None
        return WrittenCall(name, object_of(values, schemas.get(name)).removesuffix("}"))

    def _divided(
        self, values: Sequence[tuple[str, str]], known: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        """The parameters, one whose end mark is missing divided from the next one of the tool's that it
        holds."""
        given = {name for name, _ in values}
        for name, value in values:
            place = 0
            for begun in self._line.finditer(value):
                if begun[1] in known and begun[1] not in given:
                    yield name, value[place : begun.start()]
                    given.add(begun[1])
                    name, place = begun[1], begun.end()
            yield name, value[place:]

    def _parameters(self, text: str) -> tuple[list[tuple[str, str]], str | None]:
        """Names and values, and the text after the last one; None if its value does not end.

        The last end mark may be missing if the end of the call is there.
        """
        values: list[tuple[str, str]] = []
        place = 0
        while begun := self._begin.match(text, place):
            line = self._lines and text.startswith("\n", begun.end())
            end = (self._line_end if line else self._any_end).search(text, begun.end())
            if end is None:
                last = ("\n" if line else "") + self._end
                value, closed, _ = text[begun.end() :].rstrip().rpartition(last)
                return [*values, (begun[1], value[line:])], "" if closed else None
            values.append((begun[1], text[begun.end() + line : end.start()]))
            place = end.end()
        return values, text[place:]
