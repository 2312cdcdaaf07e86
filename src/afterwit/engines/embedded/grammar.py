"""JSON schemas as grammars over a model's tokens: compiled once each, within limits of work."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from tokenizers import Tokenizer
from torch import Tensor

from afterwit.core.errors import RequestRefused
from afterwit.engines.port import Constraint, Facts

KEPT = 16
"""Compiled grammars that are kept for the next request with the same schema. One may take 20 MB."""
OPTIONS = "x-guidance"
"""The key of a schema that would set the options below. A client's own is left out."""
WHITE_SPACE = r"[ \t\r\n]{1,40}"
"""Between two marks of JSON. Without a limit a small model may write white space for ever."""
LONGEST_SHOWN = 200
"""Characters of the library's own words."""
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
        self._kept: OrderedDict[tuple[str, bool], LLMatcher] = OrderedDict()
        self.compilers = ThreadPoolExecutor(1, thread_name_prefix="afterwit-grammar")
        """Compiles. One at a time: a schema that takes long delays other schemas, and nothing else."""
        self.followers = ThreadPoolExecutor(1, thread_name_prefix="afterwit-mask")
        """Works out what may be said next, while the model works."""

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
        """Whether each id goes on with a response, [V]."""
        goes_on_V = torch.ones(self._facts.vocabulary, dtype=torch.bool)
        goes_on_V[sorted(self._facts.end_ids)] = False
        return goes_on_V

    def compile(self, constraint: Constraint) -> Grammar:
        """A grammar at its beginning. Raises RequestRefused for a schema that cannot be followed."""
        key = constraint.schema, constraint.lenient
        matcher = self._kept.pop(key, None) or self._compiled(*key)
        self._kept[key] = matcher  # behind all others
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return Grammar(matcher.deep_copy(), self._facts, forget=lambda: self._kept.pop(key, None))

    def _compiled(self, schema: str, lenient: bool) -> LLMatcher:
        fields = json.loads(schema)
        fields.pop(OPTIONS, None)
        grammar = LLMatcher.grammar_from_json_schema(
            fields, overrides={"whitespace_pattern": WHITE_SPACE, "lenient": lenient}
        )
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise _refused(matcher.get_error())
        return matcher

    def close(self) -> None:
        self.compilers.shutdown(wait=False, cancel_futures=True)
        self.followers.shutdown(wait=False, cancel_futures=True)


class Grammar:
    """One response's place in a grammar. Used from one thread at a time."""

    def __init__(self, matcher: LLMatcher, facts: Facts, *, forget: Callable[[], object]) -> None:
        """`forget` drops the grammar: what was worked out for one response is shared by all, and stays."""
        self._matcher, self._forget = matcher, forget
        self._end_ids = sorted(facts.end_ids)

    def allowed(self) -> Tensor:
        """Whether each id may come next, [V]. Raises RequestRefused if that takes too much work."""
        allowed_V = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8).bool()
        if self._matcher.is_error():
            self._forget()
            raise _too_much_work(self._matcher.get_error())
        allowed_V[self._end_ids] = allowed_V[self._end_ids[0]].item()
        return allowed_V

    def accepts(self, token: int) -> bool:
        """Whether an id may come next."""
        return self._matcher.validate_tokens([token]) == 1

    def accept(self, token: int) -> None:
        """Go on behind an id that may come next."""
        self._matcher.consume_token(token)


def _refused(words: str) -> RequestRefused:
    return RequestRefused(f"The schema cannot be followed: {words[:LONGEST_SHOWN]}", field="constraint")


def _too_much_work(words: str) -> RequestRefused:
    message = f"Following the schema takes too much work here: {words[:LONGEST_SHOWN]}"
    return RequestRefused(message, field="constraint")
