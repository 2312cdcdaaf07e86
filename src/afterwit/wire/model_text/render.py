"""From a conversation to prompt ids: the model's own tokenizer and chat template, without transformers.

The template runs as transformers runs it (`apply_chat_template`): the same sandbox, filters, functions and
variables, special tokens never added twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer

from afterwit.core.errors import RequestError, SettingError
from afterwit.core.message import Conversation, Message
from afterwit.wire.model_text.encoder import Encoder
from afterwit.wire.model_text.folder import end_ids, read_json, special_tokens
from afterwit.wire.model_text.template import Template, read_templates
from afterwit.wire.model_text.text_bound import characters_per_token
from afterwit.wire.request import Field
from afterwit.wire.surrogates import without_halves

CLOCK = "strftime_now"
"""The template function that prints the date, and the template argument that pins it (epoch seconds)."""
_PINNED = 0.0


class Renderer:
    """A model folder's tokenizer and chat template. Its methods may be called from any thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: Mapping[str, str],
        *,
        special_tokens: Mapping[str, str],
        end_ids: frozenset[int],
    ) -> None:
        self._tokenizer = tokenizer
        self._templates = {name: Template(source) for name, source in templates.items()}
        self._special_tokens = dict(special_tokens)
        sources = "\n".join(templates.values())
        named = [token for name, token in special_tokens.items() if name in sources]
        self._encoder = Encoder(tokenizer, (sources, *named))
        self.end_ids = end_ids
        """Ids that end a turn."""
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary: int = len(vocabulary)
        text = tokenizer.to_str()
        self._characters_per_token = characters_per_token(json.loads(text), max(map(len, vocabulary)))
        self.tokenizer_hash = _hash(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = {index: token.content for index, token in added.items() if token.special}
        """Control tokens: id and text."""

    @classmethod
    def load(cls, folder: Path) -> Renderer:
        """Read a Hugging Face model folder. Raises SettingError with one sentence on what is missing."""
        tokenizer = _tokenizer(folder)
        try:
            return cls(
                tokenizer,
                read_templates(folder, read_json(folder / "tokenizer_config.json")),
                special_tokens=special_tokens(folder),
                end_ids=end_ids(folder, tokenizer.token_to_id),
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

    def dated(self, conversation: Conversation, now: float) -> Conversation:
        """The conversation with today's date pinned, if the template asks for the date.

        A turn stores what is returned here, so that it renders the same on any later day.
        """
        if CLOCK not in self._template(has_tools=bool(conversation.tools)).source:
            return conversation
        return replace(conversation, template_args={**conversation.template_args, CLOCK: now})

    def text(self, conversation: Conversation, *, generation_prompt: bool = True) -> str:
        """The rendered prompt. Raises RequestError(400, "template_error") if the template refuses."""
        template = self._template(has_tools=bool(conversation.tools))
        arguments = dict(conversation.template_args)
        arguments[CLOCK] = partial(_strftime, float(arguments.get(CLOCK, _PINNED)))
        variables = {
            **self._special_tokens,
            **arguments,
            "messages": [template_message(message, template.source) for message in conversation.messages],
            "tools": [dict(tool) for tool in conversation.tools] or None,
            "documents": None,
            "add_generation_prompt": generation_prompt,
        }
        try:
            return template.render(variables)
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
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _template(self, *, has_tools: bool) -> Template:
        if has_tools and "tool_use" in self._templates:
            return self._templates["tool_use"]
        return self._templates["default"]


def template_message(message: Message, template_source: str) -> dict[str, Any]:
    """A message as templates expect it: call arguments as an object, `content` always a string."""
    data = message.to_dict()
    data["content"] = message.content or ""
    if message.role == "developer" and "developer" not in template_source:
        data["role"] = "system"
    if message.reasoning is not None:
        data["thinking"] = message.reasoning
    for call in data.get("tool_calls", ()):
        call["function"]["arguments"] = _as_object(call["function"]["arguments"])
    return data


def _as_object(arguments: str) -> Any:
    """The arguments parsed if they are a JSON object, else the text."""
    try:
        parsed = json.loads(without_halves(arguments))
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


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
