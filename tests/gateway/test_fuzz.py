"""Malformed requests never cause a 5xx, and every error is JSON in its dialect's shape."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterwit.chat_format.render import Renderer
from tests.gateway.responding import FUNCTION
from tests.gateway.serving import TOOL, Serving, serving

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "n",
    "stream",
    "stream_options",
    "max_tokens",
    "logprobs",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "ignore_eos",
    "response_format",
    "top_logprobs",
    "user",
    "metadata",
    "chat_template_kwargs",
    "prompt_cache_key",
    "session_id",
]
CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
WHOLE: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Open it."}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "milk"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
    "stream": False,
    "max_tokens": 4,
    "temperature": 0.5,
}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
WHOLE_MESSAGES: dict[str, Any] = {
    "model": "tiny",
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Open it."},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "x"}, USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "milk"}]},
        {"role": "system", "content": [], "output_config": {"effort": "high"}},
    ],
    "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"user_id": "u"},
    "stream": False,
    "max_tokens": 4,
    "stop_sequences": ["."],
    "temperature": 0.5,
    "output_config": {"effort": "low"},
}
GROUP = {"type": "namespace", "name": "files", "tools": [FUNCTION]}
WHOLE_RESPONSES: dict[str, Any] = {
    "model": "tiny",
    "instructions": "Be brief.",
    "input": [
        {"type": "additional_tools", "role": "developer", "tools": [GROUP]},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"role": "user", "content": "Open it."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Why."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "milk"}]},
        {"type": "web_search_call", "id": "ws_1"},
    ],
    "tools": [FUNCTION, GROUP, {"type": "web_search"}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]},
    "include": ["message.output_text.logprobs"],
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "metadata": {"a": "b"},
    "previous_response_id": None,
    "background": False,
    "stream": False,
    "max_output_tokens": 4,
}
REQUESTS = {
    "/chat/completions": WHOLE,
    "/responses": WHOLE_RESPONSES,
    "/responses/input_tokens": WHOLE_RESPONSES,
    "/messages": WHOLE_MESSAGES,
    "/messages/count_tokens": WHOLE_MESSAGES,
}
"""A request for each route that reads a conversation."""


def paths(data: Any, here: tuple = ()) -> list[tuple]:
    """Every place in a JSON value."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [here, *(path for key, value in items for path in paths(value, (*here, key)))]


def put(data: Any, path: tuple, value: Any) -> Any:
    """The JSON value with another value at a place."""
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = put(data[path[0]], path[1:], value)
    return copy


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, renderer: Renderer) -> Iterator[Serving]:
    """One gateway for the module, on a loop of its own: examples come by the hundred."""
    ready, done = threading.Event(), asyncio.Event()
    made: list[Any] = []

    async def serve(folder: Path) -> None:
        async with serving(folder, renderer) as gateway:
            made.extend((gateway, asyncio.get_running_loop()))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(tmp_path_factory.mktemp("fuzz")),))
    thread.start()
    assert ready.wait(20)
    yield made[0]
    made[1].call_soon_threadsafe(done.set)
    thread.join()


@pytest.fixture(scope="module")
def http(served: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=20.0, verify=False) as client:
        yield client


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        anthropic = answer.request.url.path.startswith("/v1/messages")
        fields = {"message", "type"} if anthropic else {"message", "type", "param", "code"}
        assert set(answer.json()["error"]) == fields


often = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


PLACES = [(route, place) for route, whole in REQUESTS.items() for place in paths(whole)]
CHANGED = st.tuples(st.sampled_from(PLACES), JSON).map(
    lambda change: (change[0][0], put(REQUESTS[change[0][0]], change[0][1], change[1]))
)
"""A route, and its request with any value at any place."""


@settings(often, max_examples=40)
@given(CHANGED)
def test_any_value_at_any_place_of_a_request(http: httpx.Client, changed):
    route, body = changed
    check(http.post(route, json=body))


@pytest.mark.slow
@settings(often, max_examples=9000)
@given(CHANGED)
def test_any_value_at_any_place_of_very_many_requests(http: httpx.Client, changed):
    route, body = changed
    check(http.post(route, json=body))


@often
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_any_values_for_any_fields(http: httpx.Client, fields):
    check(http.post("/chat/completions", json=WHOLE | fields))


REFERENCES = JSON | st.sampled_from(["resp_" + "0" * 26, "msg_" + "0" * 27, [{"id": "rs_" + "0" * 27}]])


@often
@given(st.dictionaries(st.sampled_from(["previous_response_id", "input", "tool_choice"]), REFERENCES))
def test_any_references_to_earlier_responses(http: httpx.Client, fields):
    check(http.post("/responses", json=WHOLE_RESPONSES | fields))


@often
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_as_a_body(http: httpx.Client, body):
    for path in (*REQUESTS, "/feedback"):
        check(http.post(path, content=body, headers={"content-type": "application/json"}))


@often
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: JSON | st.sampled_from(["up", "down", "success", "chatcmpl-" + "0" * 26])
            for name in ("response_id", "turn", "choice", "thumb", "verdict", "text")
        },
    )
)
def test_any_feedback(http: httpx.Client, body):
    check(http.post("/feedback", json=body))


HEADERS = [
    "authorization",
    "x-api-key",
    "user-agent",
    "origin",
    "host",
    "content-type",
    "content-encoding",
    "x-session-id",
    "session-id",
    "x-turn-type",
    "x-session-done",
    "x-codex-turn-metadata",
    "x-parent-session-id",
    "traceparent",
    "accept",
]
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip)


@often
@given(st.dictionaries(st.sampled_from(HEADERS), VALUES, max_size=4))
def test_any_headers(http: httpx.Client, headers):
    check(http.post("/chat/completions", json=WHOLE, headers=headers))


@often
@given(st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]), st.text(max_size=20))
def test_any_method_on_any_path(http: httpx.Client, method, path):
    root = str(http.base_url).removesuffix("/v1/")
    for folder in ("/", "/v1/models/", "/v1/responses/", "/../"):
        check(http.request(method, root + folder + quote(path, safe="/%?")))
