"""Tool calls as models write them: in JSON, with typed values, or as Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Schemas = Mapping[str, Any]
"""The JSON schema of each tool's parameters, by the tool's name."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')

MOST_LOOKS = 8
"""Places in a call that are parsed as its arguments. Beyond these, the arguments are serialised again."""

_STRUCTURE = re.compile(r'["{}[\]]')
_STRING = re.compile(r'["\\]')

MOST_VISITS = 64
"""Subschemas that are read for the types of one value; a schema of references may be endless."""

_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Older templates, and their models, write values as Python prints them."""

_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}

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
_ITSELF = "\\'\""
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


class WrittenCall(NamedTuple):
    """A call as the model wrote it; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


def written(name: str, arguments: str | None) -> list[WrittenCall]:
    """The call, in a list. Empty without a name or arguments, or with half a surrogate pair."""
    if not name or arguments is None or _SURROGATE.search(name + arguments):
        return []
    return [WrittenCall(name, arguments)]


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schemas of a request's tools; the schema is None if a tool declares none."""
    functions = [tool.get("function") for tool in tools]
    found = [function if isinstance(function, Mapping) else {} for function in functions]
    return {str(function.get("name")): function.get("parameters") for function in found}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Refuses NaN and Infinity, which are not JSON."""


def ends_in_a_string(text: str) -> bool:
    """Whether JSON text stops inside a string: then an end mark after it belongs to the string."""
    try:
        DECODER.raw_decode(text.strip())
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def parse_call(text: str) -> list[WrittenCall]:
    """The call that a text is; empty if it is anything else, or several calls."""
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
    data = _decoded(text)
    calls = [_as_call(call, "") for call in data] if isinstance(data, list) else []
    return [call for (call,) in calls] if all(calls) else []


def object_text(text: str) -> str | None:
    """The text without the white space around it if it is a JSON object, else None."""
    text = text.strip()
    return text if isinstance(_decoded(text), dict) else None


def _decoded(text: str) -> Any:
    """The value of a JSON text; `...` if it is not JSON."""
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError):
        return ...


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _as_call(data: Any, text: str) -> list[WrittenCall]:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return []
    arguments = data.get("arguments", data.get("parameters", {}))
    if isinstance(arguments, str):
        return written(data["name"], object_text(arguments))
    return written(data["name"], _as_written(text, arguments)) if isinstance(arguments, dict) else []


def _as_written(call: str, arguments: dict[str, Any]) -> str:
    """The arguments as the call writes them: the client receives the sampled text."""
    for _, found in zip(range(MOST_LOOKS), _ARGUMENTS.finditer(call), strict=False):
        try:
            parsed, end = DECODER.raw_decode(call, found.end())
        except (ValueError, RecursionError):
            continue
        if parsed == arguments:
            return call[found.end() : end]
    return json.dumps(arguments)


class JsonEnd:
    """Finds the end of the JSON value after a name, and reads each character once.

    The value is an array or object at the beginning of the text, or else the first object in it: a name
    before the object may have square brackets.
    """

    def __init__(self) -> None:
        self._begun = False
        self._named = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The place in this piece after the value's last character; None until it comes."""
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
        """The place where the value begins in this piece; its length if it does not."""
        place = len(text) - len(text.lstrip())
        if not self._named and text[place : place + 1] == "[":
            self._begun = True
            return place
        self._named = self._named or place < len(text)
        place = text.find("{")
        self._begun = place >= 0
        return place if self._begun else len(text)

    def _in_string(self, text: str, place: int) -> int:
        """The place after the next quote or backslash, or after the character that a backslash escapes."""
        if self._escaped:
            self._escaped = False
            return place + 1
        found = _STRING.search(text, place)
        if found is None:
            return len(text)
        self._escaped = found[0] == "\\"
        self._quoted = self._escaped
        return found.end()


def object_of(values: Iterable[tuple[str, str]], schema: Any) -> str:
    """The JSON object of parameters by name, each value as it was written."""
    parts = [f"{_quoted(name)}: {typed(value, _property(schema, name), schema)}" for name, value in values]
    return "{" + ", ".join(parts) + "}"


def typed(value: str, schema: Any, root: Any) -> str:
    """The JSON text of a value. `schema` is a part of `root`, which its references point into.

    A value that its schema does not allow is a text, which the check of the arguments reports. A value
    without a schema is JSON if it can be, unless it is a text in quotes.
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
    """The JSON types that a schema allows; empty if they are unknown."""
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
    """The target of a reference such as `#/$defs/a`; None if there is none."""
    start, *steps = str(reference).split("/")
    found = root if start == "#" and steps else None
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(text: str) -> str:
    """The type of a JSON text; empty if it is not JSON."""
    value = _decoded(text)
    return "null" if value is None else _KINDS.get(type(value), "")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def parse_python(text: str) -> list[WrittenCall]:
    """The calls in the list that a text is; empty if it is anything else."""
    try:
        return _PythonReader(text.strip()).calls()
    except (ValueError, KeyError):
        return []


class _PythonReader:
    """Reads one text token by token. Every method raises ValueError or KeyError for unexpected text."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        self._next()

    def calls(self) -> list[WrittenCall]:
        calls: list[WrittenCall] = []
        self._take("[")
        while not self._closes("]"):
            name = self._key("word")
            self._take("(")
            arguments = self._pairs("word", "=", ")", 0)
            calls += written(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
            self._comma("]")
        if self._place != len(self._text):
            raise ValueError("text after the list")
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
        if kind == "sign" and token == "{":
            return self._pairs("text", ":", "}", depth + 1)
        end, values = {"[": "]", "(": ")"}[token], []
        while not self._closes(end):
            values.append(self._value(depth + 1))
            self._comma(end)
        self._next()
        return values

    def _pairs(self, kind: str, sign: str, end: str, depth: int) -> dict[str, Any]:
        pairs = {}
        while not self._closes(end):
            name = self._key(kind)
            self._take(sign)
            pairs[name] = self._value(depth)
            self._comma(end)
        self._next()
        return pairs

    def _key(self, kind: str) -> str:
        """A word, or a text without its quotes."""
        if self._kind != kind:
            raise ValueError(self._token)
        token = self._token
        self._next()
        return _unquoted(token) if kind == "text" else token

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
        self._place, self._kind = found.end(), str(found.lastgroup)
        self._token = found[self._kind]


def _unquoted(token: str) -> str:
    quotes = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    text = _ESCAPE.sub(_unescaped, token[quotes:-quotes])
    # joins the halves of surrogate pairs
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    if code:
        return chr(int(code, 16))
    sign = found[3]
    return _ESCAPES.get(sign, sign if sign in _ITSELF else found[0])
