"""Extreme values: numbers are used or refused, and broken or huge text never ends in a 5xx."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.chat_format.families import NO_CALLS
from afterwit.chat_format.render import Renderer
from afterwit.dialects.request import ModelRequest
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import RequestError
from afterwit.gateway.prepare import SLICE, encode_within, prepare
from afterwit.gateway.settings import GatewaySettings
from afterwit.text import without_halves
from afterwit.turn import Conversation, Message, Sampling, ToolCall
from tests.gateway.serving import TOOL, USER, Serving, serving
from tests.gateway.test_fuzz import WHOLE, paths, put

NUMBERS = (
    -1e308,
    -(2**63),
    -1.0,
    -1e-300,
    -0.0,
    1e-320,
    1e-40,
    1e-7,
    0.05,
    1,
    2.0,
    10,
    2**31,
    2**63 - 1,
    2**64,
)
FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "top_logprobs",
)


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
async def test_every_extreme_number_is_sampled_with_or_refused(
    tmp_path: Path, model: Path, renderer: Renderer, step: int
):
    """Each for every second field, and every second one for each field; or all for all."""
    engine, settings = EmbeddedEngine.load(model, EmbeddedSettings(), seed=0), GatewaySettings(max_tokens=2)
    async with serving(tmp_path, renderer, engine=engine, settings=settings) as gateway:
        for place, field in enumerate(FIELDS):
            numbers = NUMBERS[place % step :: step]
            asked = [gateway.ask(**{"model": "afterwit", "max_tokens": 2, field: value}) for value in numbers]
            for answer, value in zip(await asyncio.gather(*asked), numbers, strict=True):
                assert answer.status_code in (200, 400), (field, value, answer.text)
        for bias in (-100, 1e-320, 100):
            answer = await gateway.ask(model="afterwit", max_tokens=2, logit_bias={"5": bias, "6": -bias})
            assert answer.status_code == 200
        assert (await gateway.ask(model="afterwit", max_tokens=2, seed=2**63 - 1, n=3)).status_code == 200
    await engine.close()


STRINGS = ("\ud800", "a\udc00b\ud83d", "\x00", "\x00\ud800\U0001f600", "\ufeff\u202e", "")


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


TEXTS = [path for path in paths(WHOLE) if isinstance(at(WHOLE, path), str)]


@pytest.mark.parametrize("kinds", [2, pytest.param(len(STRINGS), marks=pytest.mark.slow)])
async def test_no_string_anywhere_ends_in_a_fault(gateway: Serving, kinds: int):
    """Two kinds of strings, others at each place; or all kinds at all places."""
    for number, path in enumerate(TEXTS):
        for text in (STRINGS[(number + step) % len(STRINGS)] for step in range(kinds)):
            body = json.dumps(put(WHOLE, path, text))
            answer = await post(gateway, body)
            assert answer.status_code < 500, (path, text, answer.text)
            if path[-1] in ("content", "text"):
                assert answer.status_code == 200, (path, text, answer.text)


async def post(gateway: Serving, body: str):
    headers = {"content-type": "application/json"}
    return await gateway.http.post("/chat/completions", content=body, headers=headers)


async def test_feedback_with_half_a_character_is_recorded(gateway: Serving):
    response = (await gateway.ask()).json()["id"]
    body = json.dumps({"response_id": response, "text": "no \ud83d"})
    headers = {"content-type": "application/json"}
    answer = await gateway.http.post("/feedback", content=body, headers=headers)
    assert answer.status_code == 200


HALF = '{"path": "\\ud83d"}'


async def test_a_history_with_half_a_character_in_a_calls_arguments_goes_on(gateway: Serving):
    gateway.says[:] = [f'<tool_call>{{"name": "read", "arguments": {HALF}}}</tool_call>', "Done."]
    said = (await gateway.ask(tools=[TOOL])).json()["choices"][0]["message"]
    assert said["tool_calls"][0]["function"]["arguments"] == HALF
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "milk"}
    answer = await gateway.ask([*USER, said, result], tools=[TOOL])
    assert answer.status_code == 200, answer.text
    first, second = await gateway.records()
    assert second.turn.parent == first.turn.id


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "read", "arguments": "{\\"a\\": \\"\\ud800\\"}"}</tool_call>',
        '<tool_call>{"name": "read", "\\u0061rguments": {"a": "\\ud800"}}</tool_call>',
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_half_a_character_that_the_model_writes_into_a_call_reaches_the_client_as_text(
    gateway: Serving, said: str, stream: bool
):
    gateway.says[:] = [said]
    answer = await gateway.ask(tools=[TOOL], stream=stream)
    assert answer.status_code == 200
    assert '"error"' not in answer.text


@given(st.text(st.sampled_from('\\u"dD89abcCeE0f')).map(json.dumps) | st.text().map(json.dumps))
def test_only_halves_of_surrogate_pairs_are_replaced(text: str):
    read = json.loads(text)
    clean = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in read)
    assert json.loads(without_halves(text)) == clean


class CountingRenderer:
    """Tokens of eight characters, none longer than 128. Counts what is encoded."""

    template_source = ""

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, text: str) -> tuple[int, ...]:
        self.encoded += len(text)
        return (0,) * (len(text) // 8)

    def most_characters(self, tokens: int) -> int:
        return 128 * tokens


@pytest.mark.parametrize(("length", "most_encoded"), [(15_000_000, 0), (2_000_000, 1_000_000)])
def test_a_text_that_cannot_fit_is_refused_before_much_of_it_is_encoded(length: int, most_encoded: int):
    renderer = CountingRenderer()
    with pytest.raises(RequestError) as refused:
        encode_within(" " * length, renderer, 40_960)  # type: ignore[arg-type] # a part of the protocol
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert renderer.encoded <= most_encoded


def test_a_text_of_doubtful_length_that_fits_is_encoded_whole():
    renderer = CountingRenderer()
    text = "x" * (8 * 1000 + SLICE)
    assert len(encode_within(text, renderer, 9_000)) == len(text) // 8  # type: ignore[arg-type] # as above


async def test_15_mb_of_spaces_are_a_400_that_says_so(gateway: Serving):
    answer = await gateway.ask([{"role": "user", "content": " " * 15_000_000}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


class GatedRenderer:
    """A renderer that waits in `encode` until the test lets it go on."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.entered, self.go_on = threading.Event(), threading.Event()

    def encode(self, text: str) -> tuple[int, ...]:
        self.entered.set()
        assert self.go_on.wait(30)
        return self._renderer.encode(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._renderer, name)


async def test_others_are_served_while_a_long_prompt_is_encoded(tmp_path: Path, renderer: Renderer):
    gated = GatedRenderer(renderer)
    async with serving(tmp_path, gated) as gateway:  # type: ignore[arg-type] # it delegates
        long = asyncio.ensure_future(gateway.ask([{"role": "user", "content": "word " * 4000}]))
        try:
            assert await asyncio.to_thread(gated.entered.wait, 30)
            health = await gateway.http.get(gateway.url.removesuffix("/v1") + "/healthz")
            assert (health.status_code, long.done()) == (200, False)
        finally:
            gated.go_on.set()
        assert (await long).status_code == 400


class UnusedTemplate(CountingRenderer):
    """A renderer whose template must not run."""

    def dated(self, conversation: Conversation, now: float) -> Conversation:
        return conversation

    def text(self, conversation: Conversation) -> str:
        raise AssertionError("rendered")


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", content="x" * 2_000_000),
        Message(
            role="assistant",
            content=None,
            tool_calls=(ToolCall(id="a", name="read", arguments=f'{{"a": "{"x" * 2_000_000}"}}'),),
        ),
    ],
)
def test_a_conversation_that_cannot_fit_is_refused_before_its_template_runs(message: Message):
    with pytest.raises(RequestError) as refused:
        prepare(asked(message), UnusedTemplate(), context_length=4096, now=0.0)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")


def asked(message: Message, **more: Any) -> ModelRequest:
    sampling = Sampling(temperature=1.0, max_tokens=1)
    return ModelRequest(
        model="tiny", conversation=Conversation(messages=(message,)), sampling=sampling, **more
    )


class ShortTemplate(UnusedTemplate):
    """A renderer whose template writes little, whatever its input."""

    convention = NO_CALLS

    def text(self, conversation: Conversation) -> str:
        return "prompt"

    def said(self, text: str) -> str:
        return text


@pytest.mark.parametrize(("length", "most_encoded"), [(15_000_000, 10), (2_000_000, 1_000_000)])
def test_a_beginning_of_the_response_that_cannot_fit_is_refused_before_it_is_encoded(
    length: int, most_encoded: int
):
    renderer = ShortTemplate()
    request = asked(Message(role="user", content="Go on."), prefill=" " * length)
    with pytest.raises(RequestError) as refused:
        prepare(request, renderer, context_length=40_960, now=0.0)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert renderer.encoded <= most_encoded


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages", "/messages/count_tokens"])
async def test_a_body_of_140_000_values_is_refused_before_it_is_decoded(gateway: Serving, path: str):
    body = '{"model": "tiny", "metadata": [' + "0," * 140_000 + "0]}"
    answer = await gateway.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "more than 131072 values" in answer.json()["error"]["message"]
