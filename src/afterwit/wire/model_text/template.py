"""A chat template, compiled and run as transformers runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from afterwit.core.errors import SettingError


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says, for cutting masks out of text; here it is inert."""

    tags = {"generation"}  # noqa: RUF012 - the name and type are Jinja's

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

    def _whole(self, caller: Any) -> Any:
        return caller()


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


MOST_DECIDED = 4096
"""Attributes of types. A template names a few dozen; one that makes names up is decided each time."""
_OF_DICTS = frozenset(dir(dict))


class _Sandbox(ImmutableSandboxedEnvironment):
    """The same sandbox, faster: it decides once for each attribute of a type, since nothing else counts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._decided: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        safe = self._decided.get((type(obj), attr))
        if safe is None:
            safe = super().is_safe_attribute(obj, attr, value)
            if len(self._decided) < MOST_DECIDED:
                self._decided[type(obj), attr] = safe
        return safe

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A message's field is not looked for among the attributes of dictionaries first."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


class Template:
    """One template. Raises jinja2.TemplateSyntaxError if it does not parse."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled = _environment().from_string(source)

    def render(self, variables: Mapping[str, Any]) -> str:
        return self._compiled.render(variables)


def read_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """A model folder's templates by name, "default" among them. A file wins over the tokenizer's config.

    Raises SettingError if there is none.
    """
    named = _from_files(folder) or _from_value(tokenizer_config.get("chat_template"))
    if "default" not in named:
        raise SettingError(
            f"{folder} has no chat template: a base model cannot be talked to, take its chat version"
        )
    return named


def _from_files(folder: Path) -> dict[str, str]:
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    if (folder / "chat_template.json").is_file():
        data = json.loads((folder / "chat_template.json").read_text(encoding="utf-8"))
        return _from_value(data.get("chat_template"))
    return {}


def _from_value(value: Any) -> dict[str, str]:
    """`chat_template` is one template or a list of named ones."""
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list):
        return {entry["name"]: entry["template"] for entry in value}
    return {}
