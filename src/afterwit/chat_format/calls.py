"""Tool calls as models write them: in JSON, with typed values, or as Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Schemas = Mapping[str, Any]
"""The JSON schema of each tool's parameters, by the tool's name."""

MOST_LOOKS = 8
"""Places in a call that are parsed as its arguments. Beyond these, the arguments are serialised again."""

MOST_VISITS = 64
"""Subschemas that are read for the types of one value; a schema of references may be endless."""

DEEPEST = 64
"""Values within each other that are read, as JSON or as Python."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')

_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Older templates, and their models, write values as Python prints them."""

_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}

_SPELT = {name: name for name in _KINDS.values()} | {
    **dict.fromkeys(("str", "text", "char", "varchar", "enum"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long", "short", "uint"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "num"), "number"),
    **dict.fromkeys(("dict", "map", "mapping"), "object"),
    **dict.fromkeys(("list", "tuple", "set", "sequence"), "array"),
    "bool": "boolean",
    "none": "null",
}
"""JSON Schema's types, and their names in the programming languages of tools' authors."""


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


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Refuses NaN and Infinity, which are not JSON."""


def _decoded(text: str) -> Any:
    """The value of a JSON text; `...` if it is not JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return ...


def ends_in_a_string(text: str) -> bool:
    """Whether JSON text stops inside a string: then an end mark after it belongs to the string."""
    try:
        _DECODER.raw_decode(text.strip())
    except (ValueError, RecursionError) as error:
        return isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string")
    return False


def object_text(text: str) -> str | None:
    """The text without the white space around it if it is a JSON object, else None."""
    text = text.strip()
    return text if isinstance(_decoded(text), dict) else None


def parse_calls(text: str) -> list[WrittenCall]:
    """The calls that a text consists of, separated by space or semicolons; empty if it is anything else."""
    calls: list[WrittenCall] = []
    place = _after_space(text, 0)
    while place < len(text):
        try:
            data, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        call = _as_call(data, text[place:end])
        if not call:
            return []
        calls += call
        place = _after_space(text, end)
        if text.startswith(";", place):
            place = _after_space(text, place + 1)
    return calls


def _after_space(text: str, place: int) -> int:
    while text[place : place + 1].isspace():
        place += 1
    return place


def parse_array(text: str) -> list[WrittenCall]:
    """The calls in the JSON array that a text is; empty if it is anything else."""
    data = _decoded(text)
    calls = [_as_call(call, "") for call in data] if isinstance(data, list) else []
    return [call for (call,) in calls] if all(calls) else []


def _as_call(data: Any, text: str) -> list[WrittenCall]:
    """The call, whose arguments are the text that was sampled, if they are found in it."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return []
    arguments = data.get("arguments", data.get("parameters", {}))
    if isinstance(arguments, str):
        return written(data["name"], object_text(arguments))
    if not isinstance(arguments, dict):
        return []
    for _, found in zip(range(MOST_LOOKS), _ARGUMENTS.finditer(text), strict=False):
        try:
            parsed, end = _DECODER.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        if parsed == arguments:
            return written(data["name"], text[found.end() : end])
    return written(data["name"], json.dumps(arguments))


def object_of(values: Iterable[tuple[str, str]], schema: Any) -> str:
    """The JSON object of parameters by name, each value as it was written."""
    known = properties_of(schema)
    parts = [f"{quoted(name)}: {_typed(value, known.get(name), schema)}" for name, value in values]
    return "{" + ", ".join(parts) + "}"


def properties_of(schema: Any) -> Mapping[str, Any]:
    """The schemas of an object's properties, by name; none if it declares none."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _typed(value: str, schema: Any, root: Any) -> str:
    """The JSON text of a value. `schema` is a part of `root`, which its references point into.

    A value that its schema does not allow is a text, which the check of the arguments reports. A value
    without a schema is JSON if it can be, unless it is a text in quotes. A text that its schema names is
    that text, though it be written in quotes.
    """
    types, texts = _types_of(schema, root)
    trimmed = value.strip()
    trimmed = _PYTHON.get(trimmed, trimmed)
    if "string" in types and not (trimmed == "null" and "null" in types):
        inner = _decoded(trimmed) if value not in texts and trimmed.startswith('"') else None
        return trimmed if isinstance(inner, str) and inner in texts else quoted(value)
    kind = _KINDS.get(type(_decoded(trimmed)), "")
    if kind in types or (kind == "integer" and "number" in types):
        return trimmed
    return trimmed if not types and kind not in ("string", "") else quoted(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _types_of(schema: Any, root: Any) -> tuple[set[str], set[str]]:
    """The JSON types that a schema allows, empty if they are unknown, and the texts that it names."""
    types: set[str] = set()
    texts: set[str] = set()
    waiting, visits = [schema], 0
    while waiting:
        part, visits = waiting.pop(), visits + 1
        if not isinstance(part, Mapping) or visits > MOST_VISITS:
            return set(), set()
        if "$ref" in part:
            try:
                waiting.append(target_of(root, part["$ref"]))
            except LookupError:
                return set(), set()
            continue
        values = [part["const"]] if "const" in part else part.get("enum")
        values = values if isinstance(values, list) else []
        texts |= {value for value in values if isinstance(value, str)}
        named = part.get("type")
        if isinstance(named, str | list):
            names = [named] if isinstance(named, str) else [name for name in named if isinstance(name, str)]
            found = {_SPELT.get(name.lower(), "") for name in names}
            if "" in found:
                return set(), set()
            found |= {"null"} if part.get("nullable") is True else set()
        else:
            found = {_KINDS[type(value)] for value in values}
        lists = [part[key] for key in ("anyOf", "oneOf") if isinstance(part.get(key), list)]
        choices = [choice for each in lists for choice in each]
        wrapped = part.get("allOf")
        choices += wrapped if isinstance(wrapped, list) and len(wrapped) == 1 else []
        if not found and not choices:
            return set(), set()
        types |= found
        waiting += [] if found else choices
    return types, texts


def target_of(root: Any, reference: Any) -> Any:
    """The target of a reference such as `#/$defs/a`. LookupError without one, or through a list."""
    if not isinstance(reference, str) or "%" in reference or not f"{reference}/".startswith("#/"):
        raise LookupError(reference)
    found = root
    for step in reference.split("/")[1:]:
        if not isinstance(found, Mapping):
            raise LookupError(reference)
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found


def parse_python(text: str) -> list[WrittenCall]:
    """The calls in the list that a text is; empty if it is anything else."""
    try:
        return _PythonReader(text.strip()).calls()
    except (ValueError, KeyError):
        return []


_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"{3}.*?"{3}|'{3}.*?'{3}|"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')"""
    r"""|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""|(?P<word>[^\W\d][\w.-]*)|(?P<sign>[][(){},=:]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""} | {
    sign: sign for sign in "\\'\""
}
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


class _PythonReader:
    """Reads one text token by token. Every method raises ValueError or KeyError for unexpected text."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        self._next()

    def calls(self) -> list[WrittenCall]:
        calls: list[WrittenCall] = []
        self._take("sign", "[")
        for _ in self._items("]"):
            name = self._take("word")
            self._take("sign", "(")
            arguments = self._named()
            calls += written(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
        if self._kind:
            raise ValueError("text after the list")
        return calls

    def _value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("too deep")
        kind, token = self._kind, self._take(self._kind)
        if kind == "text":
            return _unquoted(token)
        if kind == "number":
            return float(token) if any(sign in token for sign in ".eE") else int(token)
        if kind == "word":
            return _WORDS[token]
        if token == "{":
            return self._braces(depth + 1)
        return [self._value(depth + 1) for _ in self._items({"[": "]", "(": ")"}[token])]

    def _named(self) -> dict[str, Any]:
        arguments = {}
        for _ in self._items(")"):
            name = self._take("word")
            self._take("sign", "=")
            arguments[name] = self._value(0)
        return arguments

    def _braces(self, depth: int) -> dict[str, Any] | list[Any]:
        """A dict, or the values of a set."""
        pairs: dict[str, Any] = {}
        values: list[Any] = []
        for _ in self._items("}"):
            value = self._value(depth)
            if isinstance(value, str) and (self._kind, self._token) == ("sign", ":"):
                self._next()
                pairs[value] = self._value(depth)
            else:
                values.append(value)
        if pairs and values:
            raise ValueError("neither a dict nor a set")
        return values or pairs

    def _items(self, end: str) -> Iterator[None]:
        """One step for each item up to the end, with the commas between them read."""
        while (self._kind, self._token) != ("sign", end):
            yield
            if (self._kind, self._token) != ("sign", end):
                self._take("sign", ",")
        self._next()

    def _take(self, kind: str, token: str | None = None) -> str:
        found = self._token
        if self._kind != kind or (token is not None and found != token):
            raise ValueError(found)
        self._next()
        return found

    def _next(self) -> None:
        found = _TOKEN.match(self._text, self._place)
        if found is None and self._place < len(self._text):
            raise ValueError("no token")
        self._kind = "" if found is None else str(found.lastgroup)
        self._token = "" if found is None else found[self._kind]
        self._place = len(self._text) if found is None else found.end()


def _unquoted(token: str) -> str:
    quotes = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    text = _ESCAPE.sub(_unescaped, token[quotes:-quotes])
    # joins the halves of surrogate pairs
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(found[3], found[0])
