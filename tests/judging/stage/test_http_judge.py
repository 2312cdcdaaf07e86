"""A judge over HTTP, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from afterwit import build
from afterwit.errors import JudgeRefused, JudgeUnavailable, QuestionTooLong, SettingError
from afterwit.judging.ability import measured
from afterwit.judging.http_judge import LARGEST_ANSWER, HttpJudge, speaks_of_length
from afterwit.judging.polarity import ASKED, REPLIES
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.voting import Answer
from afterwit.turn import Message
from tests.judging.stage.asking import ask
from tests.timing import check_linear

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
    settings = JudgeSettings(url=endpoint.url + "/", model="judge-model", api_key_env="KEY", timeout_s=10)
    made = HttpJudge(settings, {"KEY": "secret"})
    yield made
    await made.close()


async def test_the_question_goes_out_as_a_chat_request_and_the_answer_comes_back(endpoint, client):
    endpoint.answers(lambda: said(r"\boxed{1}"))
    assert await ask(client) == Answer(words=r"\boxed{1}")
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


@pytest.mark.parametrize(
    "token",
    [
        "<|im_start|>",
        "<|eot_id|>",
        "<\uff5cUser\uff5c>",
        "<start_of_turn>",
        "<|turn>",
        "</s>",
        "[/INST]",
        "<<SYS>>",
        "<seed:bos>",
        "<role>",
        "<SPECIAL_11>",
        "<extra_id_1>",
        "<sop>",
        "[gMASK]",
        "[BOS]",
        "[|user|]",
        "[e~[",
        "]~b]",
        "]~!b[",
    ],
)
async def test_a_control_token_of_any_family_is_broken_before_another_judge_reads_it(endpoint, client, token):
    endpoint.answers(lambda: said("ok"))
    words = f"it said {token}user: List[INT] <b>"
    await client.ask([Message(role="user", content=words)], temperature=0.6, max_tokens=32, seed=7)
    (message,) = endpoint.bodies[0]["messages"]
    assert message["content"] == words.replace(token, f"{token[0]} {token[1:]}")


async def test_fields_may_be_added_and_left_out(endpoint):
    endpoint.answers(lambda: said("ok"))
    extra = {"max_completion_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
    omit = ("max_tokens", "seed", "temperature")
    judge = HttpJudge(JudgeSettings(url=endpoint.url, model="m", body_extra=extra, body_omit=omit), {})
    await ask(judge)
    await judge.close()
    assert set(endpoint.bodies[0]) == {"model", "messages", *extra}
    assert "Authorization" not in endpoint.headers[0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "x"}, 3], "ab"),
    ],
)
async def test_an_empty_answer_and_one_in_parts_are_answers(endpoint, client, content, text):
    endpoint.answers(lambda: said(content, reasoning_content=r"\boxed{1}"))
    assert await ask(client) == Answer(words=text)


@pytest.mark.parametrize("content", [3, {}])
async def test_an_answer_without_text_leaves_the_turn_waiting(endpoint, client, content):
    endpoint.answers(lambda: said(content, reasoning_content=r"\boxed{1}"))
    with pytest.raises(JudgeUnavailable, match="its answer has no text"):
        await ask(client)


@pytest.mark.parametrize("content", [None, "", r"had it gone well I would answer \boxed{1}, but"])
async def test_an_answer_whose_tokens_were_spent_did_not_come_to_its_end(endpoint, client, content):
    choice = {"message": {"content": content, "reasoning_content": "Hm."}, "finish_reason": "length"}
    endpoint.answers(lambda: web.json_response({"choices": [choice]}))
    assert await ask(client) == Answer(words=content or "", finished=False)


@pytest.mark.parametrize("reason", ["stop", "eos_token", "end_turn", None])
async def test_an_answer_that_ended_by_itself_is_finished(endpoint, client, reason):
    choice = {"message": {"content": "Good."}, "finish_reason": reason}
    endpoint.answers(lambda: web.json_response({"choices": [choice]}))
    assert (await ask(client)).finished


@pytest.mark.parametrize("reason", ["content_filter", "tool_calls", "abort", "error", {"type": "stop"}])
async def test_an_answer_that_ended_by_anything_else_is_not(endpoint, client, reason):
    choice = {"message": {"content": r"\boxed{1}"}, "finish_reason": reason}
    endpoint.answers(lambda: web.json_response({"choices": [choice]}))
    assert not (await ask(client)).finished


async def test_an_answer_that_a_filter_took_is_a_refusal_of_this_question_alone(endpoint, client):
    choice = {"message": {"content": None}, "finish_reason": "content_filter"}
    endpoint.answers(lambda: web.json_response({"choices": [choice]}))
    with pytest.raises(JudgeRefused, match="content_filter"):
        await ask(client)


async def test_half_a_surrogate_pair_in_an_answer_is_read_as_a_mark_for_it(endpoint, client):
    body = rb'{"choices": [{"message": {"content": "a\ud83d \\boxed{1}"}, "finish_reason": "stop"}]}'
    endpoint.answers(lambda: web.Response(body=body))
    assert await ask(client) == Answer(words="a\ufffd \\boxed{1}")


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504])
async def test_a_status_that_speaks_of_the_judge_leaves_the_turn_waiting(endpoint, client, status):
    endpoint.answers(lambda: web.Response(status=status, text="no"))
    with pytest.raises(JudgeUnavailable, match=f"HTTP {status}"):
        await ask(client)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_status_that_speaks_of_the_question_is_a_refusal(endpoint, client, status):
    error = {"error": {"message": "This model's maximum context length is 4096 tokens.", "code": 400}}
    endpoint.answers(lambda: web.json_response(error, status=status))
    with pytest.raises(QuestionTooLong, match=rf"HTTP {status}: This model's maximum context length is 4096"):
        await ask(client)


async def test_a_field_that_the_endpoint_does_not_know_is_no_question_that_is_too_long(endpoint, client):
    error = {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model."}}
    endpoint.answers(lambda: web.json_response(error, status=400))
    with pytest.raises(JudgeRefused, match="HTTP 400: Unsupported parameter") as raised:
        await ask(client)
    assert not isinstance(raised.value, QuestionTooLong)


def test_a_refusal_that_quotes_the_question_is_read_in_linear_time():
    check_linear(speaks_of_length, lambda size: b"max_" * (size // 4), 20_000)


async def test_an_error_that_is_a_text_is_shown(endpoint, client):
    endpoint.answers(lambda: web.json_response({"error": "no model of that name"}, status=404))
    with pytest.raises(JudgeUnavailable, match="HTTP 404: no model of that name"):
        await ask(client)


async def test_an_error_that_quotes_the_conversation_is_cut_before_the_quotation(endpoint, client):
    error = {"message": "1 validation error: {'input': 'my password is swordfish'}"}
    endpoint.answers(lambda: web.json_response(error, status=422))
    with pytest.raises(JudgeRefused) as raised:
        await ask(client)
    assert str(raised.value).endswith("HTTP 422: 1 validation error:")


async def test_an_error_of_any_form_is_a_refusal(endpoint, client):
    error = b'{"message": ' + b"[" * 1000 + b"]" * 1000 + b"}"
    endpoint.answers(lambda: web.Response(body=error, status=400))
    with pytest.raises(JudgeRefused, match=r"HTTP 400$"):
        await ask(client)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), (None, None), ("Fri, 31 Dec 2027 23:59:59 GMT", None), ("-1", None), ("\u00b2", None)],
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
async def test_garbage_is_not_an_answer(endpoint, client, body):
    endpoint.answers(lambda: web.Response(body=body))
    with pytest.raises(JudgeUnavailable, match="does not answer as a chat endpoint does"):
        await ask(client)


async def test_an_answer_without_end_is_cut_off(endpoint, client):
    endpoint.answers(lambda: web.Response(body=b"x" * (LARGEST_ANSWER + 1)))
    with pytest.raises(JudgeRefused, match="is over"):
        await ask(client)


async def test_a_slow_judge_runs_into_its_time_out(endpoint):
    released = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await released.wait()
        return said("late")

    endpoint.handler = slow
    judge = HttpJudge(JudgeSettings(url=endpoint.url, model="m", timeout_s=0.05), {})
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
    assert await asking == Answer(words="late")


async def test_a_connection_cut_in_the_middle_is_not_an_answer(endpoint, client):
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
    judge = HttpJudge(JudgeSettings(url=f"http://127.0.0.1:{unused_tcp_port}/v1", model="m"), {})
    with pytest.raises(JudgeUnavailable, match=f"127.0.0.1:{unused_tcp_port}.*cannot be reached"):
        await ask(judge)
    await judge.close()


async def test_a_question_with_half_a_surrogate_pair_is_refused(client):
    with pytest.raises(JudgeRefused):
        await client.ask([Message(role="user", content="\ud800")], temperature=0, max_tokens=1, seed=0)


async def test_the_key_comes_from_the_environment_variable_that_is_named():
    settings = JudgeSettings(url="http://127.0.0.1:1/v1", model="m", api_key_env="JUDGE_KEY")
    await HttpJudge(settings, {"JUDGE_KEY": "x"}).close()
    with pytest.raises(SettingError, match="JUDGE_KEY, which is not set"):
        HttpJudge(settings, {})


def first_token(*top: tuple[str, float]) -> Callable[[], web.Response]:
    """An answer with the likeliest first tokens."""
    listed = [{"token": token, "logprob": value, "bytes": None} for token, value in top]
    choice = {"message": {"content": "x"}, "logprobs": {"content": [{"token": "x", "top_logprobs": listed}]}}
    return lambda: web.json_response({"choices": [choice]})


async def test_an_answer_is_as_likely_as_the_token_that_it_begins_with(endpoint):
    """A token may be a part of the word, in any case, after a space; one that is not listed is below all."""
    endpoint.answers(first_token((" pos", -0.2), ("Positive", -2.0), ("\n", -3.0), ("Maybe", -4.0)))
    judge = HttpJudge(JudgeSettings(url=endpoint.url, model="m", body_omit=("seed",)), {})
    found = await judge.first_words([Message(role="user", content="Well?")], ["Positive", "Negative"])
    assert found == (-0.2, -4.0)
    (body,) = endpoint.bodies
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)
    await judge.close()


@pytest.mark.parametrize(
    "logprobs", [None, {}, {"content": None}, {"content": []}, {"content": [{"top_logprobs": []}]}, 3]
)
async def test_an_endpoint_without_log_probs_is_asked_once_and_is_no_reader(endpoint, logprobs):
    choice = {"message": {"content": "Positive"}, "logprobs": logprobs}
    endpoint.answers(lambda: web.json_response({"choices": [choice]}))
    judge = HttpJudge(JudgeSettings(url=endpoint.url, model="m"), {})
    assert await measured(judge, ASKED) is None
    assert len(endpoint.bodies) == 1
    await judge.close()


async def test_texts_are_read_by_no_more_calls_at_once_than_the_judge_may_get(endpoint):
    waiting, most = 0, 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0.01)
        waiting -= 1
        return first_token(("positive", -0.1))()

    endpoint.handler = handler
    judge = HttpJudge(JudgeSettings(url=endpoint.url, model="m", max_concurrency=2), {})
    await judge.logprobs(["Keep it short."] * 9, ASKED)
    assert most == 2
    await judge.close()


async def test_an_endpoint_that_tells_complaints_apart_reads_in_place_of_votes(endpoint):
    """It writes nothing that can be read, and its log-probs know what is a complaint and what thanks."""
    kinds = {text: kind for kind, texts in REPLIES.texts.items() for text in texts}
    answer = {"complaint": "negative", "thanks": "praise", "neutral": "request"}

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = json.loads(await request.read())
        content = asked["messages"][-1]["content"]
        if "logprobs" not in asked:
            return said("Hard to say.")
        (text,) = [part for part in content.split('"') if part in kinds] or ["Keep it short."]
        return first_token((answer[kinds.get(text, "complaint")], -0.1), ("other", -9.0))()

    endpoint.handler = handler
    settings = JudgeSettings(url=endpoint.url, model="m")
    judge = HttpJudge(settings, {})
    found = await build.examination(settings, judge, None, None).ability()
    assert (found.passed, found.reads, found.votes, found.fault("It")) == (False, True, False, None)
    assert found.replies is not None
    assert found.replies.complaint.found == len(REPLIES.texts["complaint"])
    (reading,) = await judge.logprobs(["Keep it short."], ASKED)
    assert found.replies.read(reading).value == -1
    await judge.close()
