"""JSON schemas as grammars over a model's tokens: compiled once each, followed within limits of work."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from tokenizers import Tokenizer
from torch import Tensor

from afterwit.chat_format.folder import tokenizer_of
from afterwit.engines.port import (
    LONGEST_MARK,
    MOST_SPACES,
    Constraint,
    Facts,
    Part,
    guided_schema,
    schema_refused,
)
from afterwit.errors import RequestRefused

CACHED = 16
"""Compiled grammars that are cached. One may take 20 MB."""
LIMITS = LLParserLimits(
    initial_lexer_fuel=250_000,
    step_lexer_fuel=200_000,
    step_max_items=20_000,
    max_items_in_row=2_000,
    max_lexer_states=8_192,
    max_grammar_size=200_000,
    verbose_errors=False,
)
"""Of one grammar and of one token. They count work, not time: every machine refuses the same schemas.

The first is also the memory of a pattern before its first token: four times as much allows 200 MB. A state of
the lexer takes up to 2 kB."""


class Grammars:
    """The grammars of one model. They are compiled in one thread and followed in another."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        self._folder = folder
        self._facts = facts
        self.end_ids = sorted(facts.end_ids)
        self._cached: OrderedDict[tuple[str, bool], LLMatcher] = OrderedDict()
        self.compilers = ThreadPoolExecutor(1, thread_name_prefix="afterwit-grammar")
        """One thread: a schema that takes long delays only other schemas."""
        self.followers = ThreadPoolExecutor(1, thread_name_prefix="afterwit-mask")
        """Computes masks while the model computes."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_of(self._folder)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        return LLTokenizer(
            str(self._folder / "tokenizer.json"), n_vocab=self._facts.vocabulary, eos_token=self.end_ids[0]
        )

    def ids_of(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def space_ids(self) -> list[int]:
        return [ids[0] for ids in map(self.ids_of, ("\n\n", "\n", " ")) if len(ids) == 1]

    @cached_property
    def all_but_ends_V(self) -> Tensor:
        """The mask of the reasoning, [V]: all ids but those that end the response."""
        goes_on_V = torch.ones(self._facts.vocabulary, dtype=torch.bool)
        goes_on_V[self.end_ids] = False
        return goes_on_V

    def compile(self, constraint: Constraint) -> LLMatcher:
        """A grammar at its beginning. Raises RequestRefused for a schema that cannot be followed."""
        schema, lenient = constraint.schema, constraint.lenient
        matcher = self._cached.pop((schema, lenient), None)
        if matcher is None:
            grammar = LLMatcher.grammar_from_json_schema(guided_schema(schema, lenient=lenient))
            matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=LIMITS)
            if matcher.is_error():
                raise schema_refused(matcher.get_error())
        self._cached[schema, lenient] = matcher  # now the youngest
        if len(self._cached) > CACHED:
            self._cached.popitem(last=False)
        return matcher.deep_copy()

    def forget(self, constraint: Constraint) -> None:
        """Drop a grammar from the cache: its lexer states are shared by all responses, and grow."""
        self._cached.pop((constraint.schema, constraint.lenient), None)

    def close(self) -> None:
        self.compilers.shutdown(wait=False, cancel_futures=True)
        self.followers.shutdown(wait=False, cancel_futures=True)


class Guide:
    """Constrains one response. Each mask is computed in another thread, during the model's forward.

    Used by the worker: `mask` before a token is drawn, `accept` after it.
    """

    def __init__(self, constraint: Constraint, grammars: Grammars) -> None:
        """Raises RequestRefused for a schema that cannot be followed. May take long."""
        self._matcher = grammars.compile(constraint)
        self._constraint, self._grammars = constraint, grammars
        self._end = constraint.starts_after
        self._state = Part.REASONING if self._end else Part.START
        self._reasoned: list[int] = []
        self._spaces = 0
        """Tokens of white space that may come before the JSON."""
        self._at = 0
        """Ids of a marker so far."""
        marks = [(grammars.ids_of(begin), end) for begin, end in constraint.openings]
        self._marks = [(ids, end) for ids, end in marks if self._matcher.validate_tokens(ids[:1]) != 1]
        """The openings, by their ids, that JSON may not begin with."""
        self._mask: Future[Tensor | None] = grammars.followers.submit(self._allowed)
        self.refusal: RequestRefused | None = None
        """Set if the response cannot go on, because its schema takes too much work from here."""

    @property
    def awaited(self) -> Future[Tensor | None] | None:
        """The mask that is being computed; None: `mask` returns at once."""
        return None if self._mask.done() else self._mask

    def mask(self) -> Tensor | None:
        """Whether each id may come next, [V]; None: all may, and so after a refusal."""
        try:
            return self._mask.result()
        except RequestRefused as error:
            self.refusal = error
            return None

    @property
    def masks(self) -> bool:
        """Whether the mask restricts the text: that of the reasoning does not."""
        return self.mask() is not None and self._state is not Part.REASONING

    def accept(self, token: int) -> None:
        if self._state is not Part.FREE:
            self._mask = self._grammars.followers.submit(self._after, token)

    def _after(self, token: int) -> Tensor | None:
        match self._state:
            case Part.REASONING:
                self._reasoned = [*self._reasoned, token][-LONGEST_MARK:]
                text = self._grammars.tokenizer.decode(self._reasoned, skip_special_tokens=False)
                if self._end in text:
                    self._state, self._spaces, self._at = Part.START, MOST_SPACES, 0
                    self._marks = [(ids, end) for ids, end in self._marks if not end]
            case Part.START:
                self._start(token)
            case Part.JSON:
                self._matcher.consume_token(token)
        return self._allowed()

    def _start(self, token: int) -> None:
        begun = [(ids, end) for ids, end in self._marks if ids[self._at] == token]
        if begun:
            self._marks, self._at = begun, self._at + 1
            end = next((end for ids, end in begun if len(ids) == self._at), None)
            if end is not None:  # the marker is complete
                self._state, self._end = (Part.REASONING if end else Part.FREE), end
        elif self._spaces and token in self._grammars.space_ids:
            self._spaces -= 1
        else:
            self._state = Part.JSON
            self._matcher.consume_token(token)

    def _allowed(self) -> Tensor | None:
        """The next mask, [V]. Raises RequestRefused if it takes too much work."""
        if self._state is Part.FREE:
            return None
        if self._state is Part.REASONING:
            return self._grammars.all_but_ends_V
        bias = self._matcher.compute_logit_bias()
        if self._matcher.is_error():
            self._grammars.forget(self._constraint)
            raise schema_refused(self._matcher.get_error(), "Following the schema takes too much work here")
        allowed_V = torch.frombuffer(bytearray(bias), dtype=torch.uint8).bool()
        ends = self._grammars.end_ids
        allowed_V[ends] = allowed_V[ends[0]].item()
        if self._state is Part.START:
            if self._at:
                allowed_V[:] = False
            allowed_V[[ids[self._at] for ids, _ in self._marks]] = True
            if self._spaces and not self._at:
                allowed_V[self._grammars.space_ids] = True
        return allowed_V
