"""llama.cpp's wire: the requests, and the meaning of recorded answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterwit.engines.llama_cpp.server import (
    LlamaCppServer,
    Reader,
    Unreported,
    params_of,
    splits,
    unenforced,
)
from afterwit.engines.port import TopLogprobs
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.server import SampleRequest, StreamChunk
from afterwit.engines.server.settings import LlamaCppSettings
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused
from afterwit.turn import Sampling

TEXTS = {b"\xe6\x9d": 126, b"\xe6": 10, b"\x9d": 11, b" \xe6\x9d": 127, b"\xb1": 12, b"a": 13}
"""Ids by their bytes; those of 東 are E6 9D B1."""


def a_request(*, schema: str | None = None, top: int | None = None, **sampling: object) -> SampleRequest:
    return SampleRequest(
        prompt_ids=(5, 6),
        sampling=Sampling(**{"max_tokens": 8} | sampling),  # type: ignore[arg-type]
        end_ids=frozenset({2}),
        weights=None,
        background=False,
        schema=schema,
        top=top,
    )


def row(index: int, text: bytes, logprob: float = -0.5, **others: float) -> dict[str, Any]:
    top = [{"id": int(name[1:]), "bytes": [], "logprob": value} for name, value in others.items()]
    return {"id": index, "bytes": list(text), "logprob": logprob, "top_logprobs": top}


def event(total: int, text: str, *rows: Mapping[str, Any], stop: str | None = None) -> dict[str, Any]:
    """As llama-server 11434 sends it, without what is not read: `tokens` of an unfinished character lack."""
    more = {} if stop is None else {"stop_type": stop}
    probabilities = {"completion_probabilities": list(rows)} if rows else {}
    said = {"index": 0, "content": text, "tokens": [each["id"] for each in rows], "stop": stop is not None}
    return {**said, "tokens_predicted": total, **probabilities, **more}


def read(*events: Mapping[str, Any], request: SampleRequest | None = None) -> list[StreamChunk]:
    response = Reader(request or a_request(), TEXTS)
    return [chunk for each in events if (chunk := response.take(each)) is not None]


def test_a_stream_is_ids_with_their_log_probs_and_an_end() -> None:
    chunks = read(
        {"prompt_progress": {"total": 2, "cache": 1, "processed": 1}, "tokens": [0]},
        event(1, "a", row(13, b"a", -0.25)),
        event(2, "b", row(14, b"b", -1.5)),
        event(2, "", stop="limit"),
    )
    assert [chunk.ids for chunk in chunks] == [(13,), (14,), ()]
    assert [chunk.logprobs for chunk in chunks] == [(-0.25,), (-1.5,), ()]
    assert [chunk.ended for chunk in chunks] == [None, None, "length"]
    assert chunks[0].cached == 1


def test_the_end_id_ends_a_response_and_is_part_of_it() -> None:
    (chunk, *_) = read(event(1, "", row(2, b"")), event(1, "", stop="eos"))
    assert (chunk.ids, chunk.ended) == ((2,), "stop")


def test_an_end_id_that_the_request_does_not_name_ends_nothing_but_a_grammar() -> None:
    events = (event(1, "", row(7, b"")), event(1, "", stop="eos"))
    assert [chunk.ended for chunk in read(*events)] == [None]
    assert read(*events, request=a_request(schema="{}"))[-1].ended == "stop"


def test_the_ids_within_a_character_are_those_of_its_bytes_and_never_train() -> None:
    (chunk,) = read(event(2, "東", row(12, b"\xb1", -0.5)))
    assert chunk.ids == (126, 12)
    assert chunk.logprobs == (0.0, -0.5)
    assert chunk.unscored == (True, False)


def test_a_character_that_was_broken_off_cannot_be_recovered() -> None:
    with pytest.raises(Unreported):
        read(event(2, "\ufffda", row(13, b"a")))
    with pytest.raises(Unreported):
        read(event(3, "東", row(12, b"\xb1")), event(5, "", stop="limit"))


def test_alternatives_are_the_likeliest_with_the_sampled_one() -> None:
    (chunk,) = read(event(1, "a", row(13, b"a", -2.0, i4=-0.5, i5=-1.0)), request=a_request(top=2))
    assert chunk.tops == (TopLogprobs(-2.0, (4, 5), (-0.5, -1.0)),)


def test_a_fault_in_the_middle_of_a_response_is_the_servers() -> None:
    with pytest.raises(EngineError, match="Context size has been exceeded"):
        read({"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}})


def test_splits_are_every_row_of_so_many_ids() -> None:
    assert list(splits(b"\xe6\x9d", 2, TEXTS)) == [(10, 11)]
    assert list(splits(b"\xe6\x9d\xb1", 2, TEXTS)) == [(126, 12)]
    assert list(splits(b"\xe6\x9d\xb1", 3, TEXTS)) == [(10, 11, 12)]
    assert list(splits(b"\xe6\x9d\xb1", 4, TEXTS)) == []


def test_the_rest_is_asked_for_after_what_came() -> None:
    request = a_request(temperature=0.7, top_k=5, seed=3, logit_bias=((4, 1.5),))
    body = params_of(request, (9, 9), 0)
    wanted = {"prompt": [5, 6, 9, 9], "n_predict": 6, "temperature": 0.7, "top_k": 5, "seed": 5}
    assert {name: body[name] for name in wanted} == wanted
    assert body["logit_bias"] == [[4, 1.5]]
    assert body["samplers"].index("temperature") < body["samplers"].index("top_k")
    assert "ignore_eos" not in body, "it would bar the end"


def test_a_schema_that_would_be_enforced_in_part_is_refused_unless_that_is_allowed() -> None:
    schema = {"type": "object", "properties": {"not": {"type": "string"}, "n": {"multipleOf": 3}}}
    request = a_request(schema=json.dumps(schema | {"x-guidance": {"lenient": False}}))
    with pytest.raises(RequestRefused, match="multipleOf"):
        params_of(request, (), 0)
    lenient = replace(request, schema=json.dumps(schema | {"x-guidance": {"lenient": True}}))
    assert params_of(lenient, (), 0)["json_schema"] == schema


@pytest.mark.parametrize(
    ("schema", "left_out"),
    [
        ({"type": "integer", "minimum": 1}, []),
        ({"type": "number", "minimum": 1}, ["minimum"]),
        ({"anyOf": [{"not": {}}, {"enum": [{"not": 1}]}]}, ["not"]),
        ({"properties": {"if": {"if": {}}}}, ["if"]),
    ],
)
def test_parts_that_its_grammars_leave_out_are_found(schema: Any, left_out: list[str]) -> None:
    assert list(unenforced(schema)) == left_out


class OddClient(ServerClient):
    """Streams events that llama-server does not have."""

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[Any], None]:
        yield [{"choices": []}]


async def test_an_event_of_an_unknown_form_is_not_taken_for_a_broken_off_character(qwen: Path) -> None:
    client = OddClient("http://127.0.0.1:1", key=None, silence_s=1)
    server = LlamaCppServer(client, LlamaCppSettings(), qwen, path="model.gguf")
    with pytest.raises(KeyError):
        await anext(server.sample(a_request()))
    await server.close()


class CutClient(ServerClient):
    """Streams responses whose next id is always within a character, up to the limit or beyond it."""

    def __init__(self, *more: Mapping[str, Any]) -> None:
        super().__init__("http://127.0.0.1:1", key=None, silence_s=1)
        self.more, self.asked = more, 0

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[Any], None]:
        self.asked += 1
        begun = [event(1, "a", row(13, b"a"))] if self.asked == 1 else []
        yield [*begun, *self.more]


@pytest.mark.parametrize(("temperature", "asked"), [(0.0, 2), (1.0, 17)])
async def test_a_response_whose_limit_is_within_a_character_ends_before_it(
    qwen: Path, temperature: float, asked: int
) -> None:
    """It was taken for a server that is away."""
    client = CutClient(event(2, "", stop="limit"))
    server = LlamaCppServer(client, LlamaCppSettings(), qwen, path="model.gguf")
    chunks = [chunk async for chunk in server.sample(a_request(temperature=temperature))]
    assert [(chunk.ids, chunk.ended) for chunk in chunks] == [((13,), None), ((), "length")]
    assert client.asked == asked, "another request with the same result is not sent"
    await server.close()


async def test_a_response_of_broken_characters_fails_alone(qwen: Path) -> None:
    server = LlamaCppServer(
        CutClient(event(2, "\ufffd", row(13, b"a"))), LlamaCppSettings(), qwen, path="model.gguf"
    )
    with pytest.raises(EngineError, match="does not report the ids") as failed:
        [chunk async for chunk in server.sample(a_request())]
    assert not isinstance(failed.value, EngineUnavailable)
    await server.close()
