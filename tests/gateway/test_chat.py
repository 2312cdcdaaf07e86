"""Responses over a real socket: a stream and a body hold the same."""

from __future__ import annotations

import asyncio

import pytest

from afterwit.gateway.settings import GatewaySettings
from afterwit.turn import turn_of_call
from tests.gateway.serving import TOOL, USER, Serving, folded, plain, serving
from tests.products import some

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "notes/todo.txt"}}\n</tool_call>'
THOUGHT = "<think>\nWhich file?\n</think>\n\n"
SAYINGS = (
    "Hello there.",
    "",
    "naïve 東京 👩‍🚀 done",
    THOUGHT + "This one.",
    CALL,
    f"Let me look.\n{CALL}\n{CALL}",
    THOUGHT + CALL,
    '<tool_call>\n{"name": read}\n</tool_call>',
    '<tool_call>\n{"name": "read", "argu',
)
ASKED = {
    "plain": {},
    "three choices": {"n": 3},
    "stop strings": {"stop": ["there", "look"]},
    "few tokens": {"max_tokens": 3},
    "one call": {"parallel_tool_calls": False},
    "log-probs": {"logprobs": True},
}


@pytest.mark.parametrize("asked", some(2, ASKED.values()), ids=ASKED)
async def test_a_stream_adds_up_to_the_body(gateway: Serving, asked: dict):
    for said in SAYINGS:
        await same_streamed_and_whole(gateway, said, asked)


async def same_streamed_and_whole(gateway: Serving, said: str, asked: dict) -> None:
    gateway.says[:] = [said]
    body = (await gateway.ask(tools=[TOOL], **asked)).json()
    chunks = await gateway.chunks(tools=[TOOL], stream_options={"include_usage": True}, **asked)
    streamed = folded(chunks)
    assert chunks[-1]["usage"] == body["usage"]
    assert len(body["choices"]) == len(streamed) == asked.get("n", 1)
    for choice in body["choices"]:
        twin = streamed[choice["index"]]
        assert without_ids(plain(twin["message"])) == without_ids(plain(choice["message"]))
        assert twin["finish_reason"] == choice["finish_reason"]
        assert logprobs(twin) == logprobs(choice)


def logprobs(choice: dict) -> list:
    return (choice["logprobs"] or {"content": []})["content"]


def without_ids(message: dict) -> dict:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message | {"tool_calls": calls}


async def test_a_stream_begins_with_the_role_and_ends_with_one_finish_reason(gateway: Serving):
    chunks = await gateway.chunks()
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert "usage" not in chunks[-1]


async def test_text_leaves_token_by_token_while_the_engine_is_still_sampling(gateway: Serving):
    gateway.engine.pause_after = 3
    body = {"model": "tiny", "messages": USER, "stream": True}
    async with gateway.http.stream("POST", "/chat/completions", json=body) as answer:
        events = answer.aiter_lines()
        seen = [line async for line in take(events, 8)]
        assert sum(line.startswith("data: ") for line in seen) == 4
        assert 'finish_reason":"stop' not in "".join(seen)
        await gateway.engine.paused.wait()
        gateway.engine.resume.set()
        rest = "".join([line async for line in events])
    assert "[DONE]" in rest


async def take(lines, count: int):
    for _ in range(count):
        yield await anext(lines)


async def test_calls_have_an_index_and_an_id_that_leads_back_to_their_turn(gateway: Serving):
    gateway.says[:] = [f"{CALL}{CALL}"]
    answer = await gateway.ask(tools=[TOOL])
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(turn_of_call(id) == answer.headers["x-afterwit-turn"] and id.isalnum() for id in ids)
    chunks = await gateway.chunks(tools=[TOOL])
    parts = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [part["index"] for part in parts if "id" in part] == [0, 1]
    assert all("index" in part for part in parts)


async def test_reasoning_has_a_field_of_its_own(gateway: Serving):
    gateway.says[:] = [THOUGHT + "This one."]
    message = (await gateway.ask()).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "This one.", "reasoning_content": "Which file?"}


async def test_usage_counts_what_the_engine_was_given_and_gave(gateway: Serving):
    usage = (await gateway.ask(n=2)).json()["usage"]
    asked = gateway.engine.asked
    (record, other) = await gateway.records()
    assert len(asked) == 2
    assert usage["prompt_tokens"] == len(asked[0].prompt_ids)
    assert usage["completion_tokens"] == len(record.turn.sampled.ids) + len(other.turn.sampled.ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_each_choice_is_a_turn_with_its_own_seed(gateway: Serving):
    answer = await gateway.ask(n=3, seed=5)
    records = await gateway.records()
    assert len({record.turn.id for record in records}) == 3
    assert {record.turn.session for record in records} == {answer.headers["x-afterwit-session"]}
    assert [request.sampling.seed for request in gateway.engine.asked] == [5, 6, 7]


async def test_if_no_call_may_be_made_the_prompt_has_no_tools_and_a_call_is_content(gateway: Serving):
    gateway.says[:] = [CALL]
    message = (await gateway.ask(tools=[TOOL], tool_choice="none")).json()["choices"][0]["message"]
    assert message["content"].startswith("<tool_call>")
    (record,) = await gateway.records()
    assert record.turn.conversation.tools == ()


@pytest.mark.parametrize(
    ("choice", "rest"),
    [
        ("required", 'read", "arguments": {"path": "a"}}\n</tool_call>'),
        ({"type": "function", "function": {"name": "read"}}, '"path": "a"}}\n</tool_call>'),
    ],
)
async def test_the_start_of_a_required_call_is_forced_and_its_tokens_are_flagged(
    gateway: Serving, choice, rest
):
    gateway.says[:] = [rest]
    answer = (await gateway.ask(tools=[TOOL], tool_choice=choice, stop=["\n{"])).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "a"}'}
    (record,) = await gateway.records()
    forced = gateway.engine.asked[0].forced_prefix
    assert len(forced) > 0
    assert record.turn.sampled.forced == (True,) * len(forced) + (False,) * (
        len(record.turn.sampled.ids) - len(forced)
    )


async def test_max_tokens_is_cut_to_what_fits_and_never_refused(gateway: Serving):
    answer = await gateway.ask(max_tokens=65536)
    assert answer.status_code == 200
    asked = gateway.engine.asked[0]
    assert asked.sampling.max_tokens == 2048 - len(asked.prompt_ids)


async def test_a_prompt_that_does_not_fit_is_a_clean_400(gateway: Serving):
    answer = await gateway.ask([{"role": "user", "content": "long " * 3000}])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert gateway.engine.asked == []


async def test_a_cut_response_says_length(gateway: Serving):
    assert (await gateway.ask(max_tokens=2)).json()["choices"][0]["finish_reason"] == "length"


async def test_only_the_sampled_tokens_log_probs_are_served(gateway: Serving):
    content = (await gateway.ask(logprobs=True)).json()["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == "Hello there."
    assert content[1]["logprob"] == -0.25
    refused = await gateway.ask(logprobs=True, top_logprobs=5)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_logprobs")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_bytes_of_the_tokens_add_up_to_the_text_of_split_characters(gateway: Serving, stream: bool):
    gateway.says[:] = ["é🙂"]
    if stream:
        choice = folded(await gateway.chunks(logprobs=True))[0]
    else:
        choice = (await gateway.ask(logprobs=True)).json()["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert "\ufffd" in {token["token"] for token in tokens}
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == "é🙂"


async def test_unknown_fields_are_ignored(gateway: Serving):
    odd = {
        "store": True,
        "metadata": {"a": "b"},
        "reasoning_effort": "low",
        "x": [1],
        "prompt_cache_key": "p:1",
    }
    assert (await gateway.ask(**odd)).status_code == 200


async def test_a_model_answers_to_its_name_and_to_afterwit(gateway: Serving):
    for name in ("tiny", "afterwit"):
        assert (await gateway.ask(model=name)).json()["model"] == name
    assert (await gateway.ask(model="gpt-9")).json()["error"]["code"] == "model_not_found"


async def test_the_fingerprint_is_the_version_that_sampled_the_end(gateway: Serving):
    gateway.engine.pause_after = 3
    asked = asyncio.ensure_future(gateway.ask())
    await gateway.engine.paused.wait()
    gateway.engine.version = 4
    gateway.engine.resume.set()
    assert (await asked).json()["system_fingerprint"] == "v4"
    (record,) = await gateway.records()
    assert set(record.turn.sampled.versions) == {3, 4}


async def test_the_settings_may_force_the_main_lines_temperature(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(force_temperature=0.6)) as gateway:
        await gateway.ask(temperature=0.0)
        assert gateway.engine.asked[0].sampling.temperature == 0.6
        (record,) = await gateway.records()
        assert record.turn.sampling.temperature == 0.6


async def test_a_response_that_takes_too_long_is_delivered_with_what_was_sampled(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(response_timeout_s=1.0)) as gateway:
        gateway.engine.pause_after = 3
        answer = (await gateway.ask()).json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 3
        gateway.engine.pause_after = 0
        assert (await gateway.ask()).status_code == 504
