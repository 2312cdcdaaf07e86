"""Tool calls as a Python list: `[read(path="a", lines=[1, 2]), look()]`."""

from __future__ import annotations

import json
import re
from typing import Any

from afterwit.wire.model_text.calls.written import WrittenCall, written

DEEPEST = 64
"""Values within each other that are read."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"{3}.*?"{3}|'{3}.*?'{3}|"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')"""
    r"""|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""|(?P<word>[^\W\d][\w.-]*)|(?P<sign>[][(){},=:]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_ITSELF = "\\'\""
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


def parse_python(text: str) -> list[WrittenCall]:
    """The calls in the list that a text is; empty if it is anything else."""
    try:
        return _Reader(text.strip()).calls()
    except (ValueError, KeyError):
        return []


class _Reader:
    """One text, token by token. Every method raises ValueError or KeyError if it is not what is read."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        self._kind, self._token = "", ""
        self._next()

    def calls(self) -> list[WrittenCall]:
        calls: list[WrittenCall] = []
        self._take("[")
        while self._token != "]" or self._kind != "sign":
            name = self._word()
            self._take("(")
            arguments = self._pairs(self._word, "=", ")", 0)
            calls += written(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
            self._comma("]")
        if self._place != len(self._text):
            raise ValueError("something follows the list")
        return calls

    def _value(self, depth: int) -> Any:
        kind, token = self._kind, self._token
        if depth > DEEPEST:
            raise ValueError("too deep")
        self._next()
        if kind == "text":
            return _unquoted(token)
        if kind == "number":
            return float(token) if any(sign in token for sign in ".eE") else int(token)
        if kind == "word":
            return _WORDS[token]
        if kind != "sign" or token not in _CLOSING:
            raise ValueError(token)
        if token == "{":
            return self._pairs(self._string, ":", "}", depth + 1)
        return self._values(_CLOSING[token], depth + 1)

    def _values(self, end: str, depth: int) -> list[Any]:
        values = []
        while not self._closes(end):
            values.append(self._value(depth))
            self._comma(end)
        self._next()
        return values

    def _pairs(self, key: Any, sign: str, end: str, depth: int) -> dict[str, Any]:
        pairs = {}
        while not self._closes(end):
            name = key()
            self._take(sign)
            pairs[name] = self._value(depth)
            self._comma(end)
        self._next()
        return pairs

    def _word(self) -> str:
        kind, token = self._kind, self._token
        if kind != "word":
            raise ValueError(token)
        self._next()
        return token

    def _string(self) -> str:
        kind, token = self._kind, self._token
        if kind != "text":
            raise ValueError(token)
        self._next()
        return _unquoted(token)

    def _closes(self, end: str) -> bool:
        return self._kind == "sign" and self._token == end

    def _comma(self, end: str) -> None:
        if not self._closes(end):
            self._take(",")

    def _take(self, sign: str) -> None:
        if self._kind != "sign" or self._token != sign:
            raise ValueError(self._token)
        self._next()

    def _next(self) -> None:
        if self._place == len(self._text):
            self._kind, self._token = "", ""
            return
        found = _TOKEN.match(self._text, self._place)
        if found is None:
            raise ValueError("no token")
        self._place = found.end()
        self._kind = str(found.lastgroup)
        self._token = found[self._kind]


def _unquoted(token: str) -> str:
    quotes = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    text = _ESCAPE.sub(_unescaped, token[quotes:-quotes])
    # two halves of a surrogate pair become their character
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    if code:
        return chr(int(code, 16))
    sign = found[3]
    return _ESCAPES.get(sign, sign if sign in _ITSELF else found[0])
