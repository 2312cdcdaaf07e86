"""JSON schemas as grammars over a model's tokens: compiled once each, followed within limits of work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum, auto
from functools import cached_property
from pathlib import Path

import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from tokenizers import Tokenizer
from torch import Tensor

from afterwit.engines.port import LONGEST_MARK, MOST_SPACES, Constraint, Facts, guided_schema
from afterwit.errors import RequestRefused

CACHED = 16
"""Compiled grammars that are cached. One may take 20 MB."""
LONGEST_MESSAGE = 200
LIMITS = LLParserLimits(
    initial_lexer_fuel=250_000,
    step_lexer_fuel=200_000,
    step_max_items=20_000,
    max_items_in_row=2_000,
    max_lexer_states=8_192,
    max_grammar_size=200_000,
    verbose_errors=False,
)
"""Of one grammar and of one token. They count work, not time: a schema is refused alike on every machine.

The first is also the memory of a pattern before its first token: four times as much allows 200 MB. A state of
the lexer takes up to 2 kB."""


class Grammars:
    """The grammars of one model. They are compiled in one thread and followed in another."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        self._folder, self._facts = folder, facts
        self._cached: OrderedDict[tuple[str, bool], LLMatcher] = OrderedDict()
        self.compilers = ThreadPoolExecutor(1, thread_name_prefix="afterwit-grammar")
        """One thread: a schema that takes long delays only other schemas."""
        self.followers = ThreadPoolExecutor(1, thread_name_prefix="afterwit-mask")
        """Computes masks while the model computes."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return Tokenizer.from_file(str(self._folder / "tokenizer.json"))

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        path = str(self._folder / "tokenizer.json")
        return LLTokenizer(path, n_vocab=self._facts.vocabulary, eos_token=min(self._facts.end_ids))

    @cached_property
    def space_ids(self) -> list[int]:
        """Ids that are white space."""
        read = (self.tokenizer.encode(text, add_special_tokens=False).ids for text in ("\n\n", "\n", " "))
        return [ids[0] for ids in read if len(ids) == 1]

    @cached_property
    def all_but_ends_V(self) -> Tensor:
        """The mask of the reasoning, [V]: all ids but those that end the response."""
        goes_on_V = torch.ones(self._facts.vocabulary, dtype=torch.bool)
        goes_on_V[sorted(self._facts.end_ids)] = False
        return goes_on_V

    def compile(self, constraint: Constraint) -> Grammar:
        """A grammar at its beginning. Raises RequestRefused for a schema that cannot be followed."""
        key = constraint.schema, constraint.lenient
        matcher = self._cached.pop(key, None) or self._compiled(*key)
        self._cached[key] = matcher  # now the youngest
        if len(self._cached) > CACHED:
            self._cached.popitem(last=False)
        return Grammar(matcher.deep_copy(), self._facts, forget=lambda: self._cached.pop(key, None))

    def _compiled(self, schema: str, lenient: bool) -> LLMatcher:
        grammar = LLMatcher.grammar_from_json_schema(guided_schema(schema, lenient=lenient))
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise _refused("The schema cannot be followed", matcher)
        return matcher

    def close(self) -> None:
        self.compilers.shutdown(wait=False, cancel_futures=True)
        self.followers.shutdown(wait=False, cancel_futures=True)


class Grammar:
    """One response's position in a grammar. Used from one thread at a time."""

    def __init__(self, matcher: LLMatcher, facts: Facts, *, forget: Callable[[], object]) -> None:
        """`forget` drops the grammar from the cache: its lexer states are shared by all responses, and
        grow."""
        self._matcher, self._forget = matcher, forget
        self._end_ids = sorted(facts.end_ids)

    def allowed(self) -> Tensor:
        """Whether each id may come next, [V]. Raises RequestRefused if that takes too much work."""
        allowed_V = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8).bool()
        if self._matcher.is_error():
            self._forget()
            raise _refused("Following the schema takes too much work here", self._matcher)
        allowed_V[self._end_ids] = allowed_V[self._end_ids[0]].item()
        return allowed_V

    def accepts(self, token: int) -> bool:
        """Whether an id may come next."""
        return self._matcher.validate_tokens([token]) == 1

    def accept(self, token: int) -> None:
        """Advance by an id that may come next."""
        self._matcher.consume_token(token)


def _refused(why: str, matcher: LLMatcher) -> RequestRefused:
    return RequestRefused(f"{why}: {matcher.get_error()[:LONGEST_MESSAGE]}", field="constraint")


class _State(Enum):
    REASONING = auto()
    """Free until the reasoning ends, except for ids that end the response."""
    START = auto()
    """JSON begins here, or a marker after which the response is free."""
    JSON = auto()
    FREE = auto()


class Guide:
    """Constrains one response. Each mask is computed in another thread, during the model's forward.

    Used by the worker: `mask` before a token is drawn, `accept` after it.
    """

    def __init__(self, constraint: Constraint, grammars: Grammars) -> None:
        """Raises RequestRefused for a schema that cannot be followed. May take long."""
        self._grammar: Grammar = grammars.compile(constraint)
        self._grammars = grammars
        self._end = constraint.starts_after
        """The text that ends the reasoning."""
        self._state = _State.REASONING if self._end else _State.START
        self._reasoned: list[int] = []
        """The latest ids of the reasoning."""
        self._spaces = 0
        """Tokens of white space that may come before the JSON."""
        self._at = 0
        """Ids of a marker so far."""
        openings = [*((begin, "") for begin in constraint.call_openings), *constraint.reasoning]
        marks = [(self._ids(begin), end) for begin, end in openings]
        self._marks = [(ids, end) for ids, end in marks if not self._grammar.accepts(ids[0])]
        """Markers that the response may begin with, and the end of the reasoning that each opens; "": it is
        free."""
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
        return self.mask() is not None and self._state is not _State.REASONING

    def accept(self, token: int) -> None:
        """Advance by a drawn token."""
        if self._state is not _State.FREE:
            self._mask = self._grammars.followers.submit(self._after, token)

    def _after(self, token: int) -> Tensor | None:
        match self._state:
            case _State.REASONING:
                self._reason(token)
            case _State.START:
                self._start(token)
            case _State.JSON:
                self._grammar.accept(token)
        return self._allowed()

    def _reason(self, token: int) -> None:
        self._reasoned = [*self._reasoned, token][-LONGEST_MARK:]
        text = self._grammars.tokenizer.decode(self._reasoned, skip_special_tokens=False)
        if self._end in text:
            self._state, self._spaces, self._at = _State.START, MOST_SPACES, 0
            self._marks = [(ids, end) for ids, end in self._marks if not end]

    def _start(self, token: int) -> None:
        begun = [(ids, end) for ids, end in self._marks if ids[self._at] == token]
        if begun:
            self._marks, self._at = begun, self._at + 1
            end = next((end for ids, end in begun if len(ids) == self._at), None)
            if end is not None:  # the marker is complete
                self._state, self._end = (_State.REASONING if end else _State.FREE), end
        elif self._spaces and token in self._grammars.space_ids:
            self._spaces -= 1
        else:
            self._state = _State.JSON
            self._grammar.accept(token)

    def _allowed(self) -> Tensor | None:
        if self._state is _State.FREE:
            return None
        if self._state is _State.REASONING:
            return self._grammars.all_but_ends_V
        if self._state is _State.JSON:
            return self._grammar.allowed()
        allowed_V = torch.zeros_like(self._grammar.allowed()) if self._at else self._grammar.allowed()
        allowed_V[[ids[self._at] for ids, _ in self._marks]] = True
        if self._spaces and not self._at:
            allowed_V[self._grammars.space_ids] = True
        return allowed_V

    def _ids(self, mark: str) -> list[int]:
        ids: list[int] = self._grammars.tokenizer.encode(mark, add_special_tokens=False).ids
        return ids
