"""The parts of a response in which the embedded engine keeps to a schema, and the others."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tokenizers import Tokenizer

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.port import Constraint
from afterwit.errors import RequestRefused
from tests.engines.talk import Said, ask, say
from tests.products import some

PROMPT = range(3, 40)
NUMBER = {"type": "integer", "minimum": 0, "maximum": 9}


def constraint(schema: Any = NUMBER, **changes: Any) -> Constraint:
    marks = {"reasoning": (("<think>", "</think>"),), "call_openings": ("<tool_call>",)}
    return Constraint(schema=json.dumps(schema), **marks | changes)


def plain(schema: Any = NUMBER, **changes: Any) -> Constraint:
    """A form that begins with the first token."""
    return Constraint(schema=json.dumps(schema), **changes)


@pytest.fixture(scope="module")
def tokenizer(qwen: Path) -> Tokenizer:
    return Tokenizer.from_file(str(qwen / "tokenizer.json"))


def wanting(tokenizer: Tokenizer, mark: str) -> tuple[tuple[int, float], ...]:
    """A bias that makes a model say a mark wherever it may."""
    return ((tokenizer.token_to_id(mark), 100.0),)


def flags(tokenizer: Tokenizer, said: Said) -> list[tuple[str, bool]]:
    texts = (tokenizer.decode([index], skip_special_tokens=False) for index in said.ids)
    return list(zip(texts, said.forced, strict=True))


async def test_reasoning_is_free_and_the_form_begins_behind_it(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    wants = wanting(tokenizer, "</think>")
    said = await say(engine, ask(PROMPT, constraint=constraint(starts_after="</think>"), logit_bias=wants))
    (first, *rest) = flags(tokenizer, said)
    assert first == ("</think>", False)
    assert all(masked for _, masked in rest)
    *number, end = ["".join(text for text, _ in rest)[:-10], rest[-1][0]]
    assert 0 <= int(number[0]) <= 9
    assert end == "<|im_end|>"


async def test_a_response_does_not_end_inside_its_reasoning(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    ends = wanting(tokenizer, "<|im_end|>")
    reasons = constraint(starts_after="</think>")
    said = await say(engine, ask(PROMPT, constraint=reasons, logit_bias=ends, max_tokens=8))
    assert said.ended == "length"
    assert tokenizer.token_to_id("<|im_end|>") not in said.ids
    assert not any(said.forced)

    wants = (*ends, (tokenizer.token_to_id("</think>"), 50.0))
    said = await say(engine, ask(PROMPT, constraint=reasons, logit_bias=wants))
    first, *form, end = flags(tokenizer, said)
    assert (first, end) == (("</think>", False), ("<|im_end|>", True))
    assert 0 <= int("".join(text for text, _ in form)) <= 9


async def test_a_response_may_open_its_own_reasoning(engine: EmbeddedEngine, tokenizer: Tokenizer) -> None:
    wants = wanting(tokenizer, "<think>")
    said = await say(engine, ask(PROMPT, constraint=constraint(), logit_bias=wants, max_tokens=4))
    assert flags(tokenizer, said) == [("<think>", True), *[("<think>", False)] * 3]


async def test_a_tool_call_has_no_form(engine: EmbeddedEngine, tokenizer: Tokenizer) -> None:
    wants = wanting(tokenizer, "<tool_call>")
    said = await say(engine, ask(PROMPT, constraint=constraint(), logit_bias=wants, max_tokens=4))
    assert flags(tokenizer, said) == [("<tool_call>", True), *[("<tool_call>", False)] * 3]


async def test_an_opening_of_several_tokens_may_be_said_too(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    opening = "<call>"
    ids = tokenizer.encode(opening, add_special_tokens=False).ids
    assert len(ids) > 1
    marks = plain(call_openings=("{", opening))
    said = await say(engine, ask(PROMPT, constraint=marks, logit_bias=((ids[0], 100.0),), max_tokens=12))
    assert list(said.ids[: len(ids)]) == ids
    assert said.forced == (True,) * len(ids) + (False,) * (12 - len(ids))


async def test_an_opening_that_json_may_begin_with_leads_to_json(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    said = await say(engine, ask(PROMPT, constraint=plain({"const": {}}, call_openings=("{",))))
    assert json.loads(tokenizer.decode(said.ids)) == {}


async def test_an_end_that_is_ignored_ends_a_form_all_the_same(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    said = await say(engine, ask(PROMPT, constraint=plain(), ignore_eos=True, max_tokens=100))
    assert said.ended == "stop"
    assert 0 <= int(tokenizer.decode(said.ids)) <= 9


async def test_responses_beside_a_form_are_what_they_are_alone(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    free = [ask(PROMPT, seed=seed, max_tokens=30) for seed in range(3)]
    formed = [
        ask(PROMPT, constraint=plain({"type": "array", "items": NUMBER}), seed=seed) for seed in range(3)
    ]
    together = await asyncio.gather(*(say(engine, request) for request in (*free, *formed)))
    for request, beside in zip(free, together[:3], strict=True):
        assert (await say(engine, request)).ids == beside.ids
        assert not any(beside.forced)
    assert all(tokenizer.decode(said.ids).startswith("[") for said in together[3:])


async def test_a_mask_that_is_late_holds_nobody_up(engine: EmbeddedEngine) -> None:
    form = plain({"type": "array", "items": NUMBER})
    requests = [ask(PROMPT, constraint=form, seed=1, max_tokens=6), ask(PROMPT, seed=2, max_tokens=6)]
    alone = [await say(engine, request) for request in requests]
    assert engine.grammars is not None
    come = threading.Event()
    engine.grammars.followers.submit(come.wait)
    late = asyncio.create_task(say(engine, requests[0]))
    for _ in range(3):
        free = await say(engine, requests[1])
        assert (free.ids, free.logprobs) == (alone[1].ids, pytest.approx(alone[1].logprobs, abs=1e-4))
    assert not late.done()
    come.set()
    said = await late
    assert (said.ids, said.logprobs) == (alone[0].ids, pytest.approx(alone[0].logprobs, abs=1e-4))


async def test_white_space_between_the_marks_of_json_has_an_end(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    wants = tuple((tokenizer.encode(space).ids[0], 100.0) for space in (" ", "\n"))
    schema = {"type": "object", "properties": {"a": NUMBER}, "required": ["a"], "additionalProperties": False}
    request = ask(PROMPT, constraint=plain(schema), logit_bias=wants, max_tokens=1000)
    said = await say(engine, request)
    assert said.ended == "stop"
    jsonschema_rs.validate(schema, json.loads(tokenizer.decode(said.ids)))


def doubled(depth: int) -> dict[str, Any]:
    """A schema of a few hundred bytes that asks 2^depth questions."""
    definitions: dict[str, Any] = {"0": NUMBER}
    for level in range(1, depth):
        reference = {"$ref": f"#/$defs/{level - 1}"}
        definitions[str(level)] = {"allOf": [reference, {"anyOf": [reference, {"type": "string"}]}]}
    return {"$defs": definitions, "$ref": f"#/$defs/{depth - 1}"}


COSTLY = {
    "questions by the million": doubled(40),
    "a pattern of large repeats": {"type": "string", "pattern": "^((a{1,500}){1,500}){1,500}$"},
    "a long string that may match anywhere": {"type": "string", "pattern": ".*a.{4000}b"},
    "many values": {"enum": [f"value {index}" for index in range(5000)]},
    "a deep nest": json.loads('{"type":"array","items":' * 90 + "{}" + "}" * 90),
    "references in a circle": {"$ref": "#"},
    "long strings": {"type": "string", "minLength": 100_000, "maxLength": 200_000},
    "many items": {"type": "array", "items": NUMBER, "minItems": 100_000},
}


@pytest.mark.parametrize("schema", some(2, COSTLY.values()), ids=COSTLY)
async def test_a_costly_schema_is_followed_or_refused_and_the_engine_goes_on(
    engine: EmbeddedEngine, tokenizer: Tokenizer, schema: Any
) -> None:
    failure = None
    try:
        await say(engine, ask(PROMPT, constraint=plain(schema), max_tokens=20))
    except RequestRefused as refused:
        failure = refused
    assert failure is None or (failure.field == "constraint" and len(str(failure)) < 400)
    said = await say(engine, ask(PROMPT, constraint=plain()))
    assert 0 <= int(tokenizer.decode(said.ids)) <= 9


async def test_a_clients_own_options_of_the_library_do_nothing(
    engine: EmbeddedEngine, tokenizer: Tokenizer
) -> None:
    schema = {**NUMBER, "x-guidance": {"lenient": True, "whitespace_pattern": "("}, "cheese": 1}
    lenient = await say(engine, ask(PROMPT, constraint=plain(schema, lenient=True)))
    assert 0 <= int(tokenizer.decode(lenient.ids)) <= 9


EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
"""Zod's pattern of an address of e-mail."""


@pytest.mark.parametrize("pattern", [EMAIL, r"^a\b"])
async def test_a_pattern_that_looks_around_is_ignored_or_refused(
    engine: EmbeddedEngine, tokenizer: Tokenizer, pattern: str
) -> None:
    schema = {"type": "string", "maxLength": 3, "pattern": pattern}
    said = await say(engine, ask(PROMPT, constraint=plain(schema, lenient=True)))
    assert len(json.loads(tokenizer.decode(said.ids))) <= 3
    with pytest.raises(RequestRefused, match="look"):
        await say(engine, ask(PROMPT, constraint=plain(schema)))


async def test_an_unknown_name_of_a_draft_is_ignored(engine: EmbeddedEngine, tokenizer: Tokenizer) -> None:
    schema = NUMBER | {"$schema": "https://json-schema.org/draft-07/schema#"}
    said = await say(engine, ask(PROMPT, constraint=plain(schema)))
    assert 0 <= int(tokenizer.decode(said.ids)) <= 9
