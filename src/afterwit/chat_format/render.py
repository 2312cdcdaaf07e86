"""From a conversation to prompt ids: the model's own tokenizer and chat template, without transformers.

The template runs as transformers runs it (`apply_chat_template`): the same sandbox, filters, functions and
variables, special tokens never added twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from tokenizers import Tokenizer, decoders

from afterwit.chat_format.encode import BROKEN, Encoder, Literal, bytes_of
from afterwit.chat_format.families import AUTO, Convention, convention_of
from afterwit.chat_format.folder import end_ids, special_tokens, tokenizer_of
from afterwit.chat_format.template import (
    REASONING_KEYS,
    TemplateRules,
    compiled,
    folded,
    read_templates,
    rules_of,
    template_message,
    template_tool,
)
from afterwit.dialects.request import EFFORT, EFFORTS, Field
from afterwit.errors import RequestError, SettingError
from afterwit.turn import Conversation, Message

CLOCK = "strftime_now"
"""The template function that prints the date, and the template argument that pins it (epoch seconds)."""

THINKING = ("enable_thinking", "thinking")
"""The template arguments that allow reasoning. Each template reads one of these; a client sends either."""

CHARACTERS_PER_TOKEN = 1024
"""More than any text has on average, even if a tokenizer merges white space or unknown words."""


RESULT_END = re.compile(r"<(?=/tool_(?:response|result|output)s?>|/function_results?>)")
"""The first character of a mark that ends a tool's result in a template, where it is not a control token. A
space after it keeps what follows inside the result."""


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
        self.tokenizer_hash = _hash(tokenizer)
        self._encoder = Encoder(tokenizer, (sources, *named), tokenizer_hash=self.tokenizer_hash)
        self.reads_only_what_is_new = self._encoder.cuts
        """The ids of a conversation's beginning are cached; False: each prompt is tokenised whole."""
        self._sources = dict(templates)
        self._templates = {name: compiled(source) for name, source in templates.items()}
        self._rules = {
            name: rules_of(partial(self._render, name), source) for name, source in templates.items()
        }
        self.convention: Convention = convention_of(self.template_source, tool_call_parser)
        """How responses write reasoning and tool calls."""
        self.end_ids = end_ids
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary: int = len(vocabulary)
        self.taught_thoughts = tuple(
            thought
            for thought in self.convention.thoughts
            if thought.begin in vocabulary or thought.begin in sources or thought.end in sources
        )
        """The reasoning that the model was taught: its tokenizer or a template has the marks."""
        self._longest_token = max(map(len, vocabulary))
        self.joins_bytes = isinstance(tokenizer.decoder, decoders.ByteLevel)
        """Whole characters have the same text alone as after other ids."""
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = {index: token.content for index, token in added.items() if token.special}
        """Control tokens: id and text."""
        shows = self.convention.shows
        control = {index for index, text in self.special_ids.items() if not shows(text)}
        self._written = Literal(self.special_ids.values())
        self._said = Literal([self.special_ids[index] for index in control])
        """For texts of the model, whose marks of reasoning and calls keep their meaning."""
        self.silent_ids = control | end_ids
        """Ids without text in a response: control tokens, except those that mark reasoning and calls."""
        self._texts: dict[int, str] = {}

    @classmethod
    def load(cls, folder: Path, *, tool_call_parser: str = AUTO) -> Renderer:
        """Read a Hugging Face model folder. Raises SettingError with one sentence on what is missing.

        `tool_call_parser`: a name of the table of conventions, for a template that teaches none.
        """
        tokenizer = tokenizer_of(folder)
        try:
            return cls(
                tokenizer,
                read_templates(folder),
                special_tokens=special_tokens(folder),
                end_ids=end_ids(folder, tokenizer.token_to_id),
                tool_call_parser=tool_call_parser,
            )
        except jinja2.TemplateSyntaxError as error:
            raise SettingError(f"the chat template of {folder} does not parse: {error}") from error

    @property
    def template_source(self) -> str:
        """The template that serves requests with tools."""
        return self._sources[self._name(has_tools=True)]

    def dated(self, conversation: Conversation, now: float) -> Conversation:
        """The conversation with the date pinned to `now`, if the template prints the date.

        The turn stores the result, so that it renders the same on any later day.
        """
        if CLOCK not in self._sources[self._name(has_tools=bool(conversation.tools))]:
            return conversation
        return replace(conversation, template_args={**conversation.template_args, CLOCK: now})

    def text(self, conversation: Conversation, *, generation_prompt: bool = True) -> str:
        """The rendered prompt. Raises RequestError(400, "template_error") if the template refuses.

        Control tokens in messages are marked, so that `encode` reads them as text (`encode.Literal`).
        """
        name = self._name(has_tools=bool(conversation.tools))
        rules = self._rules[name]
        try:
            return self._render(
                name,
                [self._marked(message, rules) for message in folded(conversation.rendered, rules)],
                [self._written.marked(template_tool(tool, rules)) for tool in conversation.tools],
                arguments=conversation.template_args,
                generation_prompt=generation_prompt,
            )
        except Exception as error:  # a template is foreign code and may raise anything
            message = f"The chat template refuses these messages: {error}"
            raise RequestError(400, "template_error", message, param=Field.MESSAGES) from error

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        """The prompt's ids, as they are sampled from and scored."""
        text = self.text(conversation)
        try:
            return self.encode(text)
        except (UnicodeEncodeError, TypeError) as error:
            raise RequestError(400, "invalid_unicode", "the messages hold half a surrogate pair") from error

    def most_characters(self, tokens: int) -> int:
        """The longest text that can have this few tokens."""
        return tokens * max(self._longest_token, CHARACTERS_PER_TOKEN)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._encoder.encode(text)

    def said(self, text: str) -> str:
        """A text in the model's place, with its control tokens marked: only a template writes those."""
        return str(self._said.marked(text))

    def decode(self, ids: Sequence[int]) -> str:
        if len(ids) != 1:
            return self._tokenizer.decode(ids, skip_special_tokens=False)
        text = self._texts.get(ids[0])
        if text is None:
            text = self._texts[ids[0]] = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def spelled(self, index: int) -> bytes:
        """A token's bytes, which may be a part of a character."""
        text = self.decode((index,))
        data = bytes_of(self._tokenizer.id_to_token(index) or "") if BROKEN in text else None
        return data or text.encode()

    def _marked(self, message: Message, rules: TemplateRules) -> dict[str, Any]:
        texts = ("content", REASONING_KEYS[0]) if message.role == "assistant" else ()
        if message.role == "tool" and message.content:
            message = replace(message, content=RESULT_END.sub(r"\g<0> ", message.content))
        data = template_message(message, rules).items()
        marked = {
            name: (self._said if name in texts else self._written).marked(value) for name, value in data
        }
        if message.reasoning is not None:
            marked |= dict.fromkeys(REASONING_KEYS, marked[REASONING_KEYS[0]])
        return marked

    def _render(
        self,
        name: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        generation_prompt: bool = True,
    ) -> str:
        """The text of the template of this name, with the variables that transformers passes to it."""
        effort = arguments.get(EFFORT)
        thinks = next((arguments[each] for each in THINKING if each in arguments), None)
        if effort in EFFORTS:
            thinks = effort != "none" if thinks is None else thinks
            arguments = {**arguments, EFFORT: known_effort(effort, self._sources[name])}
        now = datetime.fromtimestamp(float(arguments.get(CLOCK, 0)), UTC)
        return self._templates[name].render(
            {
                **self._special_tokens,
                **({} if thinks is None else dict.fromkeys(THINKING, thinks)),
                **arguments,
                CLOCK: now.strftime,
                "messages": messages,
                "tools": list(tools) or None,
                "documents": None,
                "add_generation_prompt": generation_prompt,
            }
        )

    def _name(self, *, has_tools: bool) -> str:
        return "tool_use" if has_tools and "tool_use" in self._templates else "default"


def known_effort(effort: str, template: str) -> str:
    """The nearest effort of reasoning that a template names; of two, the higher. One that names less than two
    prints what it is given: models are taught low, medium and high."""
    named = [each for each in EFFORTS if f"'{each}'" in template or f'"{each}"' in template]
    known = named if len(named) > 1 else ["low", "medium", "high"]
    place = EFFORTS.index(effort)
    return min(reversed(known), key=lambda each: abs(EFFORTS.index(each) - place))


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 of the folder's tokenizer without its truncation and padding. SettingError if it has none."""
    return _hash(tokenizer_of(folder))


def _hash(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def require_same_tokenizer(base: Path, other: Path, setting: str) -> None:
    """SettingError, with both hashes, unless both folders have the same tokenizer."""
    one, two = tokenizer_hash(base), tokenizer_hash(other)
    if one != two:
        raise SettingError(
            f"{setting} is {other}, whose tokenizer is {two[:12]}, but the model's is {one[:12]}: "
            "both must read the same ids, so choose a checkpoint of the same family"
        )
