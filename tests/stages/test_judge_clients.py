"""A judge over HTTP against a real server, and the engine as a judge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from afterwit.core.errors import (
    EngineError,
    EngineUnavailable,
    JudgeRefused,
    JudgeUnavailable,
    RequestError,
    SettingError,
)
from afterwit.core.judging.voting import parse_evaluation
from afterwit.core.message import Conversation, Message
from afterwit.engines.port import Generate, Weights
from afterwit.stages.judge.engine_judge import EngineJudge
from afterwit.stages.judge.http_judge import LARGEST_ANSWER, HttpJudge
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.wire.model_text.render import Renderer
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3

QUESTION = (Message(role="system", content="Judge."), Message(role="user", content="Was it good?"))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def said(content: Any, **message: Any) -> web.Response:
    return web.json_response({"choices": [{"message": {"content": content, **message}}]})


class Endpoint:
    """A local server whose answers the test gives; it keeps what it was asked."""

    def __init__(self) -> None:
        self.handler: Handler
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        self.headers.append(dict(request.headers))
        return await self.handler(request)

    def answers(self, response: Callable[[], web.StreamResponse]) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            return response()

        self.handler = handler


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    await runner.cleanup()


@pytest.fixture
async def client(endpoint: Endpoint) -> AsyncIterator[HttpJudge]:
    made = HttpJudge(endpoint.url + "/", "judge-model", key="secret", timeout_s=10)
    yield made
    await made.close()


async def ask(judge: HttpJudge | EngineJudge, **changes: Any) -> str:
    return await judge.ask(QUESTION, **{"temperature": 0.6, "max_tokens": 32, "seed": 7} | changes)


async def test_the_question_goes_out_as_a_chat_request_and_the_answer_comes_back(endpoint, client):
    endpoint.answers(lambda: said(r"\boxed{1}"))
    assert await ask(client) == r"\boxed{1}"
    assert endpoint.bodies == [
        {
            "model": "judge-model",
            "messages": [
                {"role": "system", "content": "Judge."},
                {"role": "user", "content": "Was it good?"},
            ],
            "temperature": 0.6,
            "max_tokens": 32,
            "seed": 7,
        }
    ]
    assert endpoint.headers[0]["Authorization"] == "Bearer secret"


async def test_fields_may_be_added_and_left_out(endpoint):
    endpoint.answers(lambda: said("ok"))
    extra = {"max_completion_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
    judge = HttpJudge(
        endpoint.url, "m", timeout_s=10, extra=extra, omit=("max_tokens", "seed", "temperature")
    )
    await ask(judge)
    await judge.close()
    assert set(endpoint.bodies[0]) == {"model", "messages", *extra}
    assert "Authorization" not in endpoint.headers[0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ""),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "x"}, 3], "ab"),
        (3, ""),
    ],
)
async def test_an_empty_or_odd_answer_is_an_answer(endpoint, client, content, text):
    endpoint.answers(lambda: said(content, reasoning_content=r"\boxed{1}"))
    assert await ask(client) == text


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504])
async def test_a_status_that_speaks_of_the_judge_leaves_the_turn_waiting(endpoint, client, status):
    endpoint.answers(lambda: web.Response(status=status, text="no"))
    with pytest.raises(JudgeUnavailable, match=f"HTTP {status}"):
        await ask(client)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_status_that_speaks_of_the_question_is_a_refusal(endpoint, client, status):
    error = {"error": {"message": "This model's maximum context length is 4096 tokens.", "code": 400}}
    endpoint.answers(lambda: web.json_response(error, status=status))
    with pytest.raises(JudgeRefused, match=rf"HTTP {status}: This model's maximum context length is 4096"):
        await ask(client)


async def test_an_error_that_quotes_the_conversation_is_cut_before_the_quotation(endpoint, client):
    error = {"message": "1 validation error: {'input': 'my password is swordfish'}"}
    endpoint.answers(lambda: web.json_response(error, status=422))
    with pytest.raises(JudgeRefused) as raised:
        await ask(client)
    assert str(raised.value).endswith("HTTP 422: 1 validation error:")


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), (None, None), ("Fri, 31 Dec 2027 23:59:59 GMT", None), ("-1", None)]
)
async def test_a_busy_judge_says_when_to_come_back(endpoint, client, header, seconds):
    headers = {} if header is None else {"Retry-After": header}
    endpoint.answers(lambda: web.Response(status=429, headers=headers))
    with pytest.raises(JudgeUnavailable) as raised:
        await ask(client)
    assert raised.value.retry_after_s == seconds


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>welcome</html>",
        b"[]",
        b"{}",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": {"0": 1}}',
        b'{"error": "overloaded"}',
        b"\xff\xfe",
    ],
)
async def test_garbage_is_no_answer(endpoint, client, body):
    endpoint.answers(lambda: web.Response(body=body))
    with pytest.raises(JudgeUnavailable, match="does not answer as a chat endpoint does"):
        await ask(client)


async def test_an_answer_without_end_is_cut_off(endpoint, client):
    endpoint.answers(lambda: web.Response(body=b"x" * (LARGEST_ANSWER + 1)))
    with pytest.raises(JudgeUnavailable, match="is over"):
        await ask(client)


async def test_a_slow_judge_runs_into_its_time_out(endpoint):
    released = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await released.wait()
        return said("late")

    endpoint.handler = slow
    judge = HttpJudge(endpoint.url, "m", timeout_s=0.05)
    with pytest.raises(JudgeUnavailable, match="did not answer in time"):
        await ask(judge)
    released.set()
    await judge.close()


async def test_a_judge_that_is_slow_but_in_time_is_heard(endpoint, client):
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        begun.set()
        await response.write(b'{"choices": [{"message": ')
        await released.wait()
        await response.write(b'{"content": "late"}}]}')
        return response

    endpoint.handler = slow
    asking = asyncio.create_task(ask(client))
    await asyncio.wait_for(begun.wait(), 5)
    released.set()
    assert await asking == "late"


async def test_a_connection_cut_in_the_middle_is_no_answer(endpoint, client):
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        request.transport.abort()
        return response

    endpoint.handler = cut
    with pytest.raises(JudgeUnavailable, match="cannot be reached"):
        await ask(client)


async def test_nobody_at_the_address_is_said_with_the_address(unused_tcp_port):
    judge = HttpJudge(f"http://127.0.0.1:{unused_tcp_port}/v1", "m", timeout_s=5)
    with pytest.raises(JudgeUnavailable, match=f"127.0.0.1:{unused_tcp_port}.*cannot be reached"):
        await ask(judge)
    await judge.close()


async def test_a_question_with_half_a_surrogate_pair_is_refused(client):
    with pytest.raises(JudgeRefused):
        await client.ask([Message(role="user", content="\ud800")], temperature=0, max_tokens=1, seed=0)


async def test_the_key_comes_from_the_environment_variable_that_is_named():
    settings = JudgeSettings(url="http://127.0.0.1:1/v1", model="m", api_key_env="JUDGE_KEY")
    await HttpJudge.of(settings, {"JUDGE_KEY": "x"}).close()
    with pytest.raises(SettingError, match="JUDGE_KEY, which is not set"):
        HttpJudge.of(settings, {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"votes": 0}, "votes is 0, but must be at least 1"),
        ({"timeout_s": 0}, "timeout_s is 0, but must be above 0"),
        ({"temperature": 3}, "temperature is 3, but must be between 0 and 2"),
        ({"url": "localhost:8000", "model": "m"}, "must begin with http"),
        ({"url": "http://localhost:8000"}, "needs its model's name"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        JudgeSettings(**fields)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(tiny_qwen3(tmp_path_factory.mktemp("qwen")))


def engine_saying(renderer: Renderer, text: str, **changes: Any) -> FakeEngine:
    def script(request: Generate) -> tuple[int, ...]:
        return renderer.encode(text)

    (end_id,) = [index for index, token in renderer.special_ids.items() if token == "<|im_end|>"]
    return FakeEngine(script, end_id=end_id, vocabulary=renderer.vocabulary, **changes)


def engine_judge(engine: FakeEngine, renderer: Renderer, **changes: Any) -> EngineJudge:
    return EngineJudge(engine, renderer, **{"weights": Weights.BASE, "thinking": False} | changes)


async def test_the_engine_judges_with_its_base_weights_in_the_background(renderer):
    engine = engine_saying(renderer, r"It was good. \boxed{1}")
    assert await ask(engine_judge(engine, renderer)) == r"It was good. \boxed{1}"
    (request,) = engine.asked
    assert (request.weights, request.background) == (Weights.BASE, True)
    assert (request.sampling.temperature, request.sampling.max_tokens, request.sampling.seed) == (0.6, 32, 7)
    plain = Conversation(messages=QUESTION, template_args={"enable_thinking": False})
    assert request.prompt_ids == renderer.prompt_ids(plain)


async def test_thinking_markers_stay_so_that_the_vote_is_read_outside_of_them(renderer):
    engine = engine_saying(renderer, r"<think>\boxed{-1}</think>\boxed{1}")
    answer = await ask(engine_judge(engine, renderer, thinking=True))
    assert parse_evaluation(answer).value == 1


async def test_a_long_answer_is_clamped_to_the_context_and_a_long_question_refused(renderer):
    length = len(
        renderer.prompt_ids(Conversation(messages=QUESTION, template_args={"enable_thinking": False}))
    )
    engine = engine_saying(renderer, "Good. " * 20, context_length=length + 3)
    await ask(engine_judge(engine, renderer))
    assert engine.asked[0].sampling.max_tokens == 3
    with pytest.raises(JudgeRefused, match="context_chars"):
        await ask(engine_judge(engine_saying(renderer, "x", context_length=length), renderer))


@pytest.mark.parametrize("error", [EngineUnavailable("no route"), EngineError("out of memory")])
async def test_an_engine_that_fails_leaves_the_turn_waiting(renderer, error):
    engine = engine_saying(renderer, "Good.")
    engine.fail_after, engine.error = 0, error
    with pytest.raises(JudgeUnavailable, match=str(error)):
        await ask(engine_judge(engine, renderer))


async def test_a_question_that_does_not_fit_the_engine_is_a_refusal(renderer):
    engine = engine_saying(renderer, "Good.")
    engine.fail_after, engine.error = 0, RequestError(400, "context_length_exceeded", "too long")
    with pytest.raises(JudgeRefused, match="too long"):
        await ask(engine_judge(engine, renderer))


async def test_a_cancelled_question_is_cancelled_in_the_engine(renderer):
    engine = engine_saying(renderer, "Good. Very good.")
    engine.pause_after = 1
    asking = asyncio.create_task(ask(engine_judge(engine, renderer)))
    await asyncio.wait_for(engine.paused.wait(), 5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert engine.cancelled == 1


class StubRenderer:
    """A renderer whose template leaves a thought open, or refuses."""

    def __init__(self, renderer: Renderer, *, refuses: bool = False) -> None:
        self._renderer, self._refuses = renderer, refuses
        self.special_ids, self.end_ids = renderer.special_ids, renderer.end_ids
        self.decode = renderer.decode

    def text(self, conversation: Conversation) -> str:
        if self._refuses:
            raise RequestError(400, "template_error", "no system role")
        return self._renderer.text(conversation) + "<think>\n"

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        return self._renderer.encode(self.text(conversation))


async def test_an_answer_that_begins_inside_a_thought_votes_only_after_it(renderer):
    stub = StubRenderer(renderer)
    unfinished = await ask(engine_judge(engine_saying(renderer, r"hm \boxed{1}"), stub))
    finished = await ask(engine_judge(engine_saying(renderer, r"hm \boxed{1}</think>\boxed{0}"), stub))
    assert parse_evaluation(unfinished).value is None
    assert parse_evaluation(finished).value == 0


async def test_a_template_that_refuses_the_question_is_a_refusal(renderer):
    stub = StubRenderer(renderer, refuses=True)
    with pytest.raises(JudgeRefused, match="no system role"):
        await ask(engine_judge(engine_saying(renderer, "x"), stub))
