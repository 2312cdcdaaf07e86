"""From a conversation to prompt ids: the model's own tokenizer and chat template, without transformers.

The template runs as transformers runs it (`apply_chat_template`): the same sandbox, filters, functions and
variables, special tokens never added twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from tokenizers import Tokenizer

from afterwit.chat_format.convention import Convention
from afterwit.chat_format.encode import Encoder, Literal, byte_pairs_of
from afterwit.chat_format.families import AUTO, convention_of
from afterwit.chat_format.folder import end_ids, read_json, special_tokens
from afterwit.chat_format.template import (
    REASONING_KEYS,
    Template,
    TemplateRules,
    folded,
    read_templates,
    rules_of,
    template_message,
    template_tool,
)
from afterwit.dialects.request import Field
from afterwit.errors import RequestError, SettingError
from afterwit.message import Conversation, Message

CLOCK = "strftime_now"
"""The template function that prints the date, and the template argument that pins it (epoch seconds)."""

_PINNED = 0.0

THINKING = ("enable_thinking", "thinking")
"""The template arguments that allow reasoning. Each template reads one of these; a client sends either."""


class Renderer:
    """A model folder's tokenizer and chat template. Its methods may be called from any thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: Mapping[str, str],
        *,
        special_tokens: Mapping[str, str],
        end_ids: frozenset[int],
        tool_call_parser: str = AUTO,
    ) -> None:
        self._tokenizer = tokenizer
        self._special_tokens = dict(special_tokens)
        sources = "\n".join(templates.values())
        named = [token for name, token in special_tokens.items() if name in sources]
        self._encoder = Encoder(tokenizer, (sources, *named), byte_pairs=byte_pairs_of(tokenizer))
        self._templates = {name: Template(source) for name, source in templates.items()}
        self._rules = {name: self._rules_of(template) for name, template in self._templates.items()}
        self.convention: Convention = convention_of(self.template_source, tool_call_parser)
        """How responses write reasoning and tool calls."""
        self.end_ids = end_ids
        """Ids that end a turn."""
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary: int = len(vocabulary)
        data = json.loads(tokenizer.to_str())
        self._characters_per_token = characters_per_token(data, max(map(len, vocabulary)))
        self.joins_bytes: bool = (data["decoder"] or {}).get("type") == "ByteLevel"
        """Whole characters have the same text by themselves as behind other ids."""
        self.tokenizer_hash = _hash(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = {index: token.content for index, token in added.items() if token.special}
        """Control tokens: id and text."""
        shows = self.convention.shows
        control = {index for index, text in self.special_ids.items() if not shows(text)}
        self._written = Literal(self.special_ids.values())
        self._said = Literal([self.special_ids[index] for index in control])
        """For texts of the model: its marks of reasoning and calls stay what they are."""
        self.silent_ids = control | end_ids
        """Ids without text in a response: control tokens, except those that mark reasoning and calls."""
        self._texts: dict[int, str] = {}
        """Of single ids, which every stream asks for again."""

    @classmethod
    def load(cls, folder: Path, *, tool_call_parser: str = AUTO) -> Renderer:
        """Read a Hugging Face model folder. Raises SettingError with one sentence on what is missing.

        `tool_call_parser` is a name of the table, for a template that does not show its own.
        """
        tokenizer = _tokenizer(folder)
        try:
            return cls(
                tokenizer,
                read_templates(folder, read_json(folder / "tokenizer_config.json")),
                special_tokens=special_tokens(folder),
                end_ids=end_ids(folder, tokenizer.token_to_id),
                tool_call_parser=tool_call_parser,
            )
        except jinja2.TemplateSyntaxError as error:
            raise SettingError(f"the chat template of {folder} does not parse: {error}") from error

    @property
    def reads_only_what_is_new(self) -> bool:
        """Whether the ids of a conversation's beginning are kept; False: each prompt is tokenised whole."""
        return self._encoder.cuts

    @property
    def template_source(self) -> str:
        """The template that serves requests with tools."""
        return self._template(has_tools=True).source

    @property
    def rules_with_tools(self) -> TemplateRules:
        """What the template that serves requests with tools takes."""
        return self._rules[self._name(has_tools=True)]

    def dated(self, conversation: Conversation, now: float) -> Conversation:
        """The conversation with today's date pinned, if the template asks for the date.

        A turn stores what is returned here, so that it renders the same on any later day.
        """
        if CLOCK not in self._template(has_tools=bool(conversation.tools)).source:
            return conversation
        return replace(conversation, template_args={**conversation.template_args, CLOCK: now})

    def text(self, conversation: Conversation, *, generation_prompt: bool = True) -> str:
        """The rendered prompt. Raises RequestError(400, "template_error") if the template refuses.

        Control tokens that somebody wrote are marked in it: `encode` reads them as text, see `literal`.
        """
        name = self._name(has_tools=bool(conversation.tools))
        rules = self._rules[name]
        try:
            variables = self._variables(
                [self._template_message(message, rules) for message in folded(conversation.messages, rules)],
                tools=[self._written.marked(template_tool(tool, rules)) for tool in conversation.tools],
                arguments=conversation.template_args,
                generation_prompt=generation_prompt,
            )
            return self._templates[name].render(variables)
        except Exception as error:  # a template is foreign code and may raise anything
            message = f"The chat template refuses these messages: {error}"
            raise RequestError(400, "template_error", message, param=Field.MESSAGES) from error

    def prompt_ids(self, conversation: Conversation, *, generation_prompt: bool = True) -> tuple[int, ...]:
        """The prompt's ids, as they are sampled from and scored."""
        text = self.text(conversation, generation_prompt=generation_prompt)
        try:
            return self.encode(text)
        except (UnicodeEncodeError, TypeError) as error:
            raise RequestError(400, "invalid_unicode", "the messages hold half a surrogate pair") from error

    def most_characters(self, tokens: int) -> int:
        """The longest text that can have this few tokens, see `text_bound`."""
        return tokens * self._characters_per_token

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text; nothing is added to it."""
        return self._encoder.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        if len(ids) != 1:
            return self._tokenizer.decode(ids, skip_special_tokens=False)
        text = self._texts.get(ids[0])
        if text is None:
            text = self._texts[ids[0]] = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _template_message(self, message: Message, rules: TemplateRules) -> dict[str, Any]:
        data = template_message(message, rules)
        texts = {"content", *REASONING_KEYS} if message.role == "assistant" else ()
        return {
            name: (self._said if name in texts else self._written).marked(value)
            for name, value in data.items()
        }

    def _variables(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        arguments: Mapping[str, Any] = MappingProxyType({}),
        generation_prompt: bool = True,
    ) -> dict[str, Any]:
        """What transformers gives a template."""
        thinks = next((arguments[name] for name in THINKING if name in arguments), None)
        return {
            **self._special_tokens,
            **({} if thinks is None else dict.fromkeys(THINKING, thinks)),
            **arguments,
            CLOCK: partial(_strftime, float(arguments.get(CLOCK, _PINNED))),
            "messages": messages,
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": generation_prompt,
        }

    def _rules_of(self, template: Template) -> TemplateRules:
        def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
            return template.render(self._variables(messages, tools=tools))

        return rules_of(render, template.source)

    def _template(self, *, has_tools: bool) -> Template:
        return self._templates[self._name(has_tools=has_tools)]

    def _name(self, *, has_tools: bool) -> str:
        return "tool_use" if has_tools and "tool_use" in self._templates else "default"


def _strftime(seconds: float, form: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 of the folder's tokenizer without its truncation and padding. SettingError if it has none."""
    return _hash(_tokenizer(folder))


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SettingError(f"{folder} has no tokenizer.json: it is not a model folder with a fast tokenizer")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise SettingError(f"{path} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _hash(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


SHRINKAGE = {"Lowercase": 1, "NFC": 2, "NFD": 1, "Prepend": 1}
"""At most how many characters a normalizer turns into one byte. NFC turns up to three (u, diaeresis, macron)
into a character of two bytes."""

KEEPING = ("ByteLevel", "Split", "Digits", "Punctuation")
"""Pre-tokenizers that drop nothing, unless they are told to remove what they split at."""

UNPROVEN = 1024
"""Characters per token if a tokenizer may drop or merge text (white space, unknown words). This bound is not
proven, but no text that people write comes near it."""


def characters_per_token(tokenizer: Mapping[str, Any], longest: int) -> int:
    """At most how many characters become one token; `tokenizer` is its JSON, `longest` its longest token.

    Exact for tokenizers over bytes: a token has at most `longest` bytes, and a character at least one.
    """
    shrink = _shrinkage(tokenizer)
    if shrink is None or not _over_bytes(tokenizer) or any(map(_swallows_spaces, _added(tokenizer))):
        return max(longest, UNPROVEN)
    return shrink * longest


def _shrinkage(tokenizer: Mapping[str, Any]) -> int | None:
    """How far the normalizers shrink a text; None if that is not known."""
    shrink = 1
    for part in _parts(tokenizer.get("normalizer"), "normalizers"):
        if part["type"] not in SHRINKAGE:
            return None
        shrink *= SHRINKAGE[part["type"]]
    return shrink


def _over_bytes(tokenizer: Mapping[str, Any]) -> bool:
    """Whether every byte of the text ends in some token."""
    parts = list(_parts(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    kept = all(part["type"] in KEEPING and part.get("behavior") != "Removed" for part in parts)
    return kept and any(part["type"] == "ByteLevel" for part in parts)


def _parts(section: Mapping[str, Any] | None, name: str) -> Iterator[Mapping[str, Any]]:
    """A section's parts, those of sequences one by one."""
    if section is None:
        return
    if section["type"] != "Sequence":
        yield section
        return
    for part in section[name]:
        yield from _parts(part, name)


def _added(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(tokenizer.get("added_tokens") or ())


def _swallows_spaces(token: Mapping[str, Any]) -> bool:
    return bool(token.get("lstrip") or token.get("rstrip"))


def require_same_tokenizer(base: Path, other: Path, setting: str) -> None:
    """SettingError, with both hashes, unless both folders have the same tokenizer."""
    one, two = tokenizer_hash(base), tokenizer_hash(other)
    if one != two:
        raise SettingError(
            f"{setting} is {other}, whose tokenizer is {two[:12]}, but the model's is {one[:12]}: "
            "both must read the same ids, so choose a checkpoint of the same family"
        )
