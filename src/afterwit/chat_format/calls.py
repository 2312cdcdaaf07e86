"""Tool calls as the JSON that models write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Refuses NaN and Infinity, which are no JSON."""

_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')


def ends_in_a_string(text: str) -> bool:
    """Whether a call's text stops inside a JSON string: then an end mark after it belongs to the string."""
    try:
        DECODER.raw_decode(text.strip())
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def parse_call(text: str) -> list[WrittenCall]:
    """The one call that a text is, alone; empty if it is anything else."""
    calls = parse_calls(text)
    return calls if len(calls) == 1 else []


def parse_calls(text: str) -> list[WrittenCall]:
    """The calls that a text consists of, separated by space or semicolons; empty if it is anything else."""
    calls: list[WrittenCall] = []
    place = _skip(text, 0)
    while place < len(text):
        try:
            data, end = DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        call = _as_call(data, text[place:end])
        if not call:
            return []
        calls += call
        place = _skip(text, end)
        if text.startswith(";", place):
            place = _skip(text, place + 1)
    return calls


def parse_array(text: str) -> list[WrittenCall]:
    """The calls in the JSON array that a text is; empty if it is anything else."""
    try:
        data = DECODER.decode(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(data, list):
        return []
    calls = [_as_call(call, "") for call in data]
    return [call for (call,) in calls] if all(calls) else []


def object_text(text: str) -> str | None:
    """The text without the white space around it if it is a JSON object, else None."""
    text = text.strip()
    try:
        return text if isinstance(DECODER.decode(text), dict) else None
    except (ValueError, RecursionError):
        return None


def _skip(text: str, place: int) -> int:
    """The first place from `place` on that is not white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _as_call(data: Any, text: str) -> list[WrittenCall]:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return []
    key = "arguments" if "arguments" in data else "parameters"
    arguments = data.get(key, {})
    if isinstance(arguments, str):
        return written(data["name"], object_text(arguments))
    return written(data["name"], _as_written(text, arguments)) if isinstance(arguments, dict) else []


MOST_LOOKS = 8
"""Most places in a call that are parsed as its arguments. After these, the arguments are serialised again."""


def _as_written(call: str, arguments: dict[str, Any]) -> str:
    """The arguments as the call has them: the client receives what was sampled."""
    for _, found in zip(range(MOST_LOOKS), _ARGUMENTS.finditer(call), strict=False):
        try:
            parsed, end = DECODER.raw_decode(call, found.end())
        except (ValueError, RecursionError):
            continue
        if parsed == arguments:
            return call[found.end() : end]
    return json.dumps(arguments)


_STRUCTURE = re.compile(r'["{}[\]]')
_STRING = re.compile(r'["\\]')


class JsonEnd:
    """Finds the end of the value that a text holds behind a name. Each character is looked at once.

    The value is an array or object that the text begins with, or else the first object in it: a name before
    it may have square brackets.
    """

    def __init__(self) -> None:
        self._begun = False
        self._named = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The place in this piece behind the value's last character; None until it comes."""
        place = 0
        if not self._begun:
            place = self._beginning(text)
        while place < len(text):
            if self._quoted:
                place = self._in_string(text, place)
                continue
            found = _STRUCTURE.search(text, place)
            if found is None:
                return None
            place = found.end()
            if found[0] == '"':
                self._quoted = True
                continue
            self._depth += 1 if found[0] in "{[" else -1
            if self._depth == 0:
                return place
        return None

    def _beginning(self, text: str) -> int:
        """Where the value begins in this piece; its length if it does not."""
        place = len(text) - len(text.lstrip())
        if not self._named and text[place : place + 1] == "[":
            self._begun = True
            return place
        self._named = self._named or place < len(text)
        place = text.find("{")
        self._begun = place >= 0
        return place if self._begun else len(text)

    def _in_string(self, text: str, place: int) -> int:
        """The place behind the next quote or backslash, and what an open backslash takes."""
        if self._escaped:
            self._escaped = False
            return place + 1
        found = _STRING.search(text, place)
        if found is None:
            return len(text)
        self._escaped = found[0] == "\\"
        self._quoted = self._escaped
        return found.end()


MOST_VISITS = 64
"""Subschemas that are looked at for the types of one value; a schema of references may have no end."""

_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Older templates write a value as Python prints it, and their models do, too."""

_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def object_of(values: Iterable[tuple[str, str]], schema: Any) -> str:
    """The JSON object of parameters by name, each value as it was written."""
    parts = [f"{_quoted(name)}: {typed(value, _property(schema, name), schema)}" for name, value in values]
    return "{" + ", ".join(parts) + "}"


def typed(value: str, schema: Any, root: Any) -> str:
    """The JSON text of a value. `schema` is a part of `root`, which its references lead into.

    A value that is nothing that its schema allows is a text: the check of the call's arguments says so. A
    value without a schema is what its JSON is, if it is JSON and no text in quotes.
    """
    types = types_of(schema, root)
    trimmed = value.strip()
    trimmed = _PYTHON.get(trimmed, trimmed)
    if "string" in types and not (trimmed == "null" and "null" in types):
        return _quoted(value)
    kind = _kind(trimmed)
    if kind in types or (kind == "integer" and "number" in types):
        return trimmed
    return trimmed if not types and kind not in ("string", "") else _quoted(value)


def types_of(schema: Any, root: Any) -> frozenset[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    types: set[str] = set()
    waiting, visits = [schema], 0
    while waiting:
        part, visits = waiting.pop(), visits + 1
        if not isinstance(part, Mapping) or visits > MOST_VISITS:
            return frozenset()
        if "$ref" in part:
            waiting.append(_target(root, part["$ref"]))
            continue
        found = _own_types(part)
        choices = [choice for key in ("anyOf", "oneOf") for choice in _listed(part.get(key))]
        if not found and not choices:
            return frozenset()
        types |= found
        waiting += [] if found else choices
    return frozenset(types)


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return {named, "null"} if schema.get("nullable") is True else {named}
    if isinstance(named, list):
        return {name for name in named if isinstance(name, str)}
    values = [schema["const"]] if "const" in schema else _listed(schema.get("enum"))
    return {_KINDS.get(type(value), "null") for value in values}


def _property(schema: Any, name: str) -> Any:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties.get(name) if isinstance(properties, Mapping) else None


def _target(root: Any, reference: Any) -> Any:
    """What a reference such as `#/$defs/a` leads to; None if it leads nowhere."""
    found = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if str(reference).startswith("#/") else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(text: str) -> str:
    """The JSON type of a JSON text; empty if it is none."""
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError):
        return ""
    return "null" if value is None else _KINDS[type(value)]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_SURROGATE = re.compile("[\ud800-\udfff]")

Schemas = Mapping[str, Any]
"""The JSON schema of each tool's parameters, by the tool's name."""


class WrittenCall(NamedTuple):
    """A call as the model wrote it; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


def written(name: str, arguments: str | None) -> list[WrittenCall]:
    """The call, alone. Empty without a name or arguments, or if half a surrogate pair could not be sent."""
    if not name or arguments is None or _SURROGATE.search(name + arguments):
        return []
    return [WrittenCall(name, arguments)]


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schemas of a request's tools; the schema is None if a tool declares none."""
    functions = [tool.get("function") for tool in tools]
    found = [function if isinstance(function, Mapping) else {} for function in functions]
    return {str(function.get("name")): function.get("parameters") for function in found}


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
