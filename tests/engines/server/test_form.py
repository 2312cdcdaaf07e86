"""A response with a form on a server: free reasoning and calls, then JSON in one whole ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.engines.port import Constraint, TopLogprobs
from afterwit.engines.server.server import (
    BARRED,
    CUT,
    SampleRequest,
    ServedResponse,
    StreamChunk,
    begins_json,
)
from afterwit.errors import RequestRefused
from tests.engines.server.pretend import FACTS
from tests.engines.talk import ask

WORDS = [
    "",
    " ",
    "</s>",
    "<think>",
    "</think>",
    "<call>",
    "</",
    "think>",
    "hm",
    "{",
    '"a"',
    ":1}",
    "<",
    "call>",
]
"""The text of each id; 2 is the end id."""
SCHEMA = '{"type": "object"}'
THINKS = Constraint(schema=SCHEMA, starts_after="</think>")
MAY_THINK = Constraint(schema=SCHEMA, reasoning=(("<think>", "</think>"),))
MAY_CALL = Constraint(schema=SCHEMA, call_openings=("<call>",))
BOTH = replace(THINKS, call_openings=("<call>",))
JSON = (9, 10, 11, 2)


def text_of(ids: Sequence[int]) -> str:
    return "".join(WORDS[index] for index in ids)


def piece(*ids: int, ended: str | None = None, **more: Any) -> StreamChunk:
    return StreamChunk(ids=ids, logprobs=(-0.5,) * len(ids), ended=ended, **more)


def responded(
    constraint: Constraint, *answers: Sequence[StreamChunk], **sampling: Any
) -> tuple[Any, list[SampleRequest]]:
    """(ids, forced, end) of a response from a server's chunks, one list an ask; and the asks."""
    request = ask([50], constraint=constraint, **({"max_tokens": 40} | sampling))
    response, ids, forced, end, asks = ServedResponse(request, FACTS, text_of), [], [], None, []
    for answer in answers:
        asks.append(response.rest(None))
        for each in answer:
            if (step := response.take(each, 7)) is not None:
                ids += step.ids
                forced += step.forced
                end = step.ended
            if response.turns:
                break
    return (tuple(ids), forced, end), asks


def test_without_reasoning_and_calls_the_whole_response_is_kept_to_the_schema_and_comes_at_once():
    said, asks = responded(Constraint(schema=SCHEMA), [piece(9), piece(10, 11), piece(2, ended="stop")])
    assert said == (JSON, [True] * 4, "stop")
    schema = json.loads(asks[0].schema or "")
    assert (schema["type"], schema["x-guidance"]["lenient"]) == ("object", False)


def test_reasoning_is_free_but_may_not_end_the_response_and_json_begins_right_behind_it():
    said, (first, second) = responded(
        THINKS, [piece(8), piece(8, 6, 7, 8, 2)], [piece(*JSON, ended="stop")], logit_bias=((5, 1.0),)
    )
    assert said == ((8, 8, 6, 7, *JSON), [False] * 4 + [True] * 4, "stop"), (
        "what came behind the end is dropped"
    )
    assert (first.schema, first.sampling.logit_bias) == (None, ((5, 1.0), (2, BARRED)))
    assert second.schema is not None
    assert second.sampling.logit_bias == ((5, 1.0),)
    assert (second.prompt_ids, second.sampling.max_tokens) == ((50, 8, 8, 6, 7), 36)


def test_a_call_is_free_and_goes_on_in_the_same_answer():
    said, asks = responded(MAY_CALL, [piece(1), piece(12), piece(13, 8), piece(8, 2, ended="stop")])
    assert said == ((1, 12, 13, 8, 8, 2), [False] * 6, "stop")
    assert [each.schema for each in asks] == [None]


@pytest.mark.parametrize("look", [(9,), (8, 8), (12, 8), (1, 1, 1), (2,), (10, 11)])
def test_what_begins_with_no_mark_is_dropped_and_asked_for_again_as_json(look: tuple[int, ...]):
    said, (_, second) = responded(
        MAY_CALL, [piece(*look, ended="stop" if 2 in look else None)], [piece(*JSON, ended="stop")]
    )
    assert said == (JSON, [True] * 4, "stop")
    assert second.prompt_ids == (50,)


def test_reasoning_that_the_response_opens_itself_is_followed_by_json():
    said, (_, second, third) = responded(
        MAY_THINK, [piece(3, 8)], [piece(8), piece(4)], [piece(*JSON, ended="stop")]
    )
    assert said == ((3, 8, 4, *JSON), [False] * 3 + [True] * 4, "stop")
    assert second.sampling.logit_bias == ((2, BARRED),)
    assert third.schema is not None


def test_behind_the_reasoning_a_call_is_free_too():
    said, _ = responded(BOTH, [piece(8, 4)], [piece(5, 8, 2, ended="stop")])
    assert said == ((8, 4, 5, 8, 2), [False] * 5, "stop")


def test_json_that_is_cut_off_begins_anew_and_nothing_of_it_was_said():
    said, (first, second) = responded(
        Constraint(schema=SCHEMA), [piece(9, 10), piece(ended=CUT)], [piece(*JSON, ended="stop")]
    )
    assert said == (JSON, [True] * 4, "stop")
    assert first == second


def test_the_limit_ends_json_and_reasoning():
    assert responded(Constraint(schema=SCHEMA), [piece(9, 10, ended="length")], max_tokens=2)[0] == (
        (9, 10),
        [True] * 2,
        "length",
    )
    assert responded(THINKS, [piece(8, 4)], max_tokens=2)[0] == ((8, 4), [False] * 2, "length")


def test_alternatives_travel_with_what_is_held_and_what_was_ruled_out_is_none():
    request = ask([50], constraint=Constraint(schema=SCHEMA), top_logprobs=2)
    response = ServedResponse(request, FACTS, text_of)
    response.rest(None)
    inf = float("-inf")
    response.take(piece(9, tops=(TopLogprobs(-0.5, (9, 8), (-0.5, -1.0)),)), 7)
    step = response.take(piece(2, ended="stop", tops=(TopLogprobs(0.0, (2, 8), (0.0, inf)),)), 7)
    assert step is not None
    assert step.top_logprobs == (
        TopLogprobs(sampled=-0.5, ids=(9, 8), logprobs=(-0.5, -1.0)),
        TopLogprobs(sampled=0.0, ids=(2,), logprobs=(0.0,)),
    )


def test_the_prompts_cached_tokens_are_those_of_the_first_request_though_its_ids_were_dropped():
    for first, counted in ((piece(8, cached=1), 1), (piece(8), None), (piece(8, cached=0), 0)):
        request = ask([50], constraint=MAY_THINK, max_tokens=40)
        response, steps = ServedResponse(request, FACTS, text_of), []
        for answer in ([first], [piece(9, 10, cached=1), piece(11, 2, ended="stop", cached=1)]):
            response.rest(None)
            steps += [step for each in answer if (step := response.take(each, 7)) is not None]
        assert [step.cached for step in steps] == [counted]


def test_what_is_no_schema_is_refused():
    with pytest.raises(RequestRefused, match="cheese") as refused:
        responded(Constraint(schema='{"type": "cheese"}'))
    assert refused.value.field == "constraint"


@pytest.mark.parametrize("mark", ["{", '{"name": ', "[", "[]", '[{"', " [1", "-", "t", "nullable", '"'])
def test_a_mark_that_json_may_begin_like_says_nothing(mark: str):
    assert begins_json(mark)


@pytest.mark.parametrize("mark", ["<tool_call>", "[TOOL_CALLS]", "[func(", "<think>", "call:"])
def test_a_mark_that_json_cannot_begin_like_is_one(mark: str):
    assert not begins_json(mark)


@given(st.lists(st.integers(1, len(WORDS) - 1), max_size=12), st.lists(st.integers(0, 12), max_size=6))
def test_however_an_answer_is_cut_into_pieces_the_same_is_said(ids: list[int], places: list[int]):
    ids = [index for index in ids if index != 2]
    cuts = [0, *sorted(min(place, len(ids)) for place in places), len(ids)]
    rest = [piece(*JSON, ended="stop")]
    for constraint in (THINKS, MAY_THINK, MAY_CALL):
        split, _ = responded(constraint, [piece(*ids[a:b]) for a, b in pairwise(cuts)], rest)
        assert split == responded(constraint, [piece(*ids)], rest)[0]


def test_a_response_that_is_cut_where_it_may_still_become_a_call_may_become_one_again() -> None:
    call = [piece(12), piece(13), piece(8), piece(2, ended="stop")]
    said, asks = responded(MAY_CALL, [piece(12, ended=CUT)], call)
    assert said == ((12, 13, 8, 2), [False] * 4, "stop")
    assert [each.schema for each in asks] == [None, None]
