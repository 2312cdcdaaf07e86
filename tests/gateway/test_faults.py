"""A client's answer if its request, its key or the engine is at fault."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest

from afterwit.errors import ContextExceeded, EngineUnavailable, RequestRefused
from afterwit.gateway.app import MOST_LINES, FewLines
from afterwit.gateway.settings import GatewaySettings
from tests.gateway.serving import USER, Serving, serving


def root(gateway: Serving) -> str:
    return gateway.url.removesuffix("/v1")


async def test_an_engine_that_fails_before_the_first_token_gives_an_error_status(gateway: Serving):
    gateway.engine.fail_after = 0
    for stream in (False, True):
        answer = await gateway.ask(stream=stream)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    gateway.engine.error = EngineUnavailable("gone")
    assert (await gateway.ask()).status_code == 502
    assert await gateway.records() == []


async def test_a_request_that_the_engine_refuses_is_a_400_and_no_fault_of_the_engine(gateway: Serving):
    gateway.engine.fail_after = 0
    errors = {
        "messages": ContextExceeded("too long", field="prompt"),
        "logit_bias": RequestRefused("odd", field="logit_bias"),
    }
    for param, refused in errors.items():
        gateway.engine.error = refused
        answer = await gateway.ask()
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (await gateway.http.get(root(gateway) + "/readyz", headers=gateway.owner)).status_code == 200


async def test_a_tool_call_that_the_engine_cannot_force_is_refused(gateway: Serving):
    gateway.engine.capabilities = replace(gateway.engine.capabilities, forced_prefix=False)
    tools = [{"type": "function", "function": {"name": "look"}}]
    answer = await gateway.ask(tool_choice="required", tools=tools)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_tool_choice")


async def test_a_failed_engine_is_not_ready_until_it_answers_or_some_time_has_passed(gateway: Serving):
    async def ready() -> int:
        return (await gateway.http.get(root(gateway) + "/readyz", headers=gateway.owner)).status_code

    gateway.engine.fail_after = 0
    await gateway.ask()
    assert await ready() == 503
    gateway.clock.at += 31.0
    assert await ready() == 200
    await gateway.ask()
    assert await ready() == 503
    gateway.engine.fail_after = None
    await gateway.ask()
    assert await ready() == 200


async def test_an_engine_that_says_it_is_away_is_not_ready_for_as_long_as_it_says_so(gateway: Serving):
    async def ready() -> tuple[int, str | None]:
        answer = await gateway.http.get(root(gateway) + "/readyz", headers=gateway.owner)
        stages = {stage["stage"]: stage for stage in answer.json()["stages"]}
        return answer.status_code, stages.get("engine", {}).get("message")

    gateway.engine.fault = "the server cannot be reached"
    assert await ready() == (503, "the server cannot be reached")
    gateway.engine.fault = None
    assert await ready() == (200, None)


async def test_an_engine_of_which_a_part_is_out_is_ready_and_says_which(gateway: Serving):
    gateway.engine.reduced = "1 of 2 servers are out: http://gpu2:8000: nobody answers"
    answer = await gateway.http.get(root(gateway) + "/readyz", headers=gateway.owner)
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    stages = {stage["stage"]: stage for stage in answer.json()["stages"]}
    assert stages["engine"]["message"] == gateway.engine.reduced


async def test_an_internal_error_ends_the_stream_and_its_text_is_not_shown(gateway: Serving, caplog):
    gateway.engine.fail_after = 3
    gateway.engine.error = ZeroDivisionError("the-secret-word")
    answer = await gateway.ask(stream=True)
    assert (
        json.loads(answer.text.split("\n\n")[-2].removeprefix("data: "))["error"]["code"] == "internal_error"
    )
    assert (await gateway.ask()).json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text + caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_an_engine_that_fails_in_the_middle_ends_the_stream_with_an_error_object(
    gateway: Serving,
):
    gateway.engine.fail_after = 3
    answer = await gateway.ask(stream=True)
    *chunks, last, rest = answer.text.split("\n\n")
    assert (answer.status_code, rest) == (200, "")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_failed"
    assert len(chunks) > 1
    assert (await gateway.ask()).status_code == 500


async def test_one_choice_that_fails_ends_the_others(gateway: Serving):
    gateway.engine.fail_after = 2
    answer = await gateway.ask(stream=True, n=3)
    assert answer.text.count('"error"') == 1
    assert gateway.app.gateway.in_flight.count == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"[" * 5000, "invalid_json"),
        (b'{"model": "tiny"}', "invalid_type"),
    ],
)
async def test_a_body_that_is_not_a_request_is_a_400(gateway: Serving, body, code):
    answer = await gateway.http.post(
        "/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


async def test_a_request_without_a_model_is_served_by_the_one_that_is_served(gateway: Serving):
    said = {"messages": [{"role": "user", "content": "x"}], "input": "x", "max_tokens": 9}
    for path in ("/chat/completions", "/responses", "/messages"):
        answer = await gateway.http.post(path, json=said)
        assert (answer.status_code, answer.json()["model"]) == (200, "tiny")


async def test_a_byte_order_mark_before_a_body_is_left_out(gateway: Serving):
    body = b'\xef\xbb\xbf{"model": "tiny", "messages": [{"role": "user", "content": "x"}]}'
    headers = {"content-type": "application/json"}
    assert (await gateway.http.post("/chat/completions", content=body, headers=headers)).status_code == 200


async def test_a_body_of_another_media_type_is_a_415(gateway: Serving):
    for headers in ({"content-type": "text/plain"}, {"content-encoding": "gzip"}):
        answer = await gateway.http.post("/chat/completions", content=b"{}", headers=headers)
        assert answer.status_code == 415


async def test_a_body_with_an_empty_encoding_is_read(gateway: Serving):
    said = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
    for encoding in ("", "identity"):
        headers = {"content-encoding": encoding}
        assert (await gateway.http.post("/chat/completions", json=said, headers=headers)).status_code == 200


async def test_a_page_that_names_no_media_type_to_avoid_a_preflight_is_refused(gateway: Serving):
    for headers, status in (({}, 400), ({"origin": "http://localhost:3000"}, 415)):
        answer = await gateway.http.post("/chat/completions", content=b"{}", headers=headers)
        assert answer.status_code == status


async def test_a_body_that_is_too_large_is_a_413_with_and_without_content_length(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_body_bytes=1000)) as gateway:
        answer = await gateway.ask([{"role": "user", "content": "x" * 2000}])
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")

        async def pieces():
            for _ in range(20):
                yield b" " * 100

        headers = {"content-type": "application/json"}
        answer = await gateway.http.post("/chat/completions", content=pieces(), headers=headers)
        assert answer.status_code == 413


async def test_a_body_that_stalls_is_a_408(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(body_timeout_s=0.1)) as gateway:
        host, port = root(gateway).removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_request_too_many_is_a_429_with_retry_after(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_requests=1)) as gateway:
        gateway.engine.pause_after = 0
        first = asyncio.ensure_future(gateway.ask())
        await gateway.engine.paused.wait()
        refused = await gateway.ask()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        gateway.engine.resume.set()
        assert (await first).status_code == 200


async def test_a_key_with_many_choices_is_refused_before_another_key_is(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_requests=10)) as gateway:
        greedy, other = [{"authorization": f"Bearer {await gateway.add_key(n, 'chat')}"} for n in ("a", "b")]
        body = {"model": "tiny", "messages": USER, "stream": True}
        gateway.engine.pause_after = 0
        async with AsyncExitStack() as running:

            async def begin(headers: dict[str, str], choices: int) -> httpx.Response:
                asked = gateway.http.stream(
                    "POST", "/chat/completions", json=body | {"n": choices}, headers=headers
                )
                return await running.enter_async_context(asked)

            begun = [await begin(greedy, 4), await begin(greedy, 4)]
            assert (await begin(greedy, 1)).status_code == 429
            begun.append(await begin(other, 2))
            gateway.engine.resume.set()
            for answer in begun:
                assert answer.status_code == 200
                assert b"[DONE]" in await answer.aread()
        further = [asked.further for asked in gateway.engine.asked]
        assert further == [False, True, True, True] * 2 + [False, True]


async def test_a_drain_finishes_the_running_stream_and_refuses_the_new(gateway: Serving):
    gateway.engine.pause_after = 2
    running = asyncio.ensure_future(gateway.chunks())
    await gateway.engine.paused.wait()
    drain = asyncio.ensure_future(gateway.app.in_flight.drain())
    await asyncio.sleep(0)
    refused = await gateway.ask()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert (await gateway.http.get(root(gateway) + "/readyz", headers=gateway.owner)).status_code == 503
    gateway.engine.resume.set()
    assert (await running)[-1]["choices"][0]["finish_reason"] == "stop"
    await drain


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", "/v1/completions", "/v1/chat/completions/"])
async def test_an_unknown_path_is_a_404_in_json(gateway: Serving, path):
    answer = await gateway.http.get(root(gateway) + path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_route")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("//v1/responses", "/v1/responses"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/models", "/v1/models"),
        ("/v1/feedback/", "/v1/feedback"),
        ("/openai/v1/chat/completions", "/v1/chat/completions"),
        ("/anthropic/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/v1/completions", None),
        ("/v1", None),
    ],
)
async def test_a_base_url_that_is_nearly_right_is_told(gateway: Serving, path: str, meant: str | None):
    answer = await gateway.http.post(root(gateway) + path, json={})
    hint = "" if meant is None else f" {meant} is served: look at the client's base URL."
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == f"There is nothing at {path}.{hint}"


async def test_a_wrong_method_is_a_405_in_json_and_head_is_answered(gateway: Serving):
    answer = await gateway.http.get("/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    for path in ("/", "/v1/models", "/healthz"):
        head = await gateway.http.head(root(gateway) + path)
        assert (head.status_code, head.content) == (200, b"")
    assert (await gateway.http.head(root(gateway) + "/nope")).status_code == 404


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_every_method_on_a_path_that_is_not_there_is_a_404_in_json(gateway: Serving, method: str):
    answer = await gateway.http.request(method, root(gateway) + "/v1/assistants")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


async def test_the_log_names_a_path_that_is_not_there_cut_and_without_control_characters(
    gateway: Serving, caplog
):
    caplog.set_level("INFO", logger="afterwit.gateway")
    await gateway.http.post(root(gateway) + "/v1/assistants", json={})
    await gateway.http.get(root(gateway) + "/a%0Ab%1B%5B31m%E6%9D%B1")
    await gateway.http.get(root(gateway) + "/" + "x" * 5000)
    named, escaped, cut = (record.getMessage() for record in caplog.records[-3:])
    assert named.startswith("POST /v1/assistants 404 ")
    assert escaped.startswith(r"GET /a\nb\x1b[31m\u6771 404 ")
    assert len(cut) < 200


async def test_the_log_of_a_flood_of_bad_requests_is_bounded(gateway: Serving, caplog):
    caplog.set_level("INFO", logger="afterwit.gateway")
    gateway.app._lines = FewLines(3600.0)  # however slow the machine is, it is one period
    for number in range(40):
        await gateway.http.post("/chat/completions", content=b"{")
        await gateway.http.post(root(gateway) + f"/v1/{number}", json={})
    lines = [record.getMessage() for record in caplog.records]
    assert [sum(f" {status} " in line for line in lines) for status in (400, 404)] == [MOST_LINES] * 2


async def test_a_period_of_log_lines_ends_with_the_number_of_those_that_were_left_out(caplog):
    lines = FewLines(0.01)
    assert [lines.room("x") for _ in range(MOST_LINES + 7)] == [True] * MOST_LINES + [False] * 7
    assert lines.room("y")
    await asyncio.sleep(0.1)
    assert [record.getMessage() for record in caplog.records] == ["x: 7 more in 0.01 seconds"]
    assert lines.room("x")


async def test_a_request_too_many_is_refused_before_its_body_is_read(tmp_path, renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_requests=1)) as gateway:
        gateway.engine.pause_after = 0
        first = asyncio.ensure_future(gateway.ask())
        await gateway.engine.paused.wait()
        host, port = root(gateway).removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        writer.write(start)
        assert b" 429 " in await reader.readline()
        writer.close()
        gateway.engine.resume.set()
        assert (await first).status_code == 200


async def test_a_page_of_another_site_can_post_nothing_to_any_route(tmp_path, renderer):
    """As browsers let it without a preflight: text, a form, a body without a type. And JSON by a name of the
    site's own that leads here."""
    text, form = {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}
    own, evil, no_one = ({"origin": of} for of in ("http://localhost:3000", "https://evil.org", "null"))
    sent = [own | text, own | form, own, evil | text, no_one | form]
    sent.append({"host": "evil.org", "origin": "http://evil.org", "content-type": "application/json"})
    async with serving(tmp_path, renderer, roll_back=lambda target: "") as gateway:
        posts = [each for each in gateway.app._router.routes if "POST" in (each.methods or ())]
        assert len(posts) > 15
        for route in posts:
            url = root(gateway) + re.sub(r"{.*?}", "x", route.path)
            for headers in sent:
                answer = await gateway.http.post(url, content=b'{"messages": []}', headers=headers)
                assert answer.status_code in ((401, 403, 415) if own.items() <= headers.items() else (403,))
            preflight = own | {"access-control-request-method": "POST"}
            allowed = await gateway.http.options(url, headers=preflight)
            assert "access-control-allow-origin" not in allowed.headers
        assert gateway.engine.asked == []


async def test_a_page_of_an_allowed_origin_may_call_and_its_browser_lets_it_read(tmp_path, renderer):
    app = {"origin": "app://obsidian.md"}
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    settings = GatewaySettings(allowed_origins=(app["origin"],))
    async with serving(tmp_path, renderer, settings=settings) as gateway:
        key = await gateway.add_key("ann", "chat")
        asked = await gateway.http.options("/chat/completions", headers=app | preflight)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-headers"] == "authorization"
        for sent, status in (({"authorization": f"Bearer {key}"}, 200), ({}, 401)):
            body = {"model": "tiny", "messages": USER}
            answer = await gateway.http.post("/chat/completions", json=body, headers=app | sent)
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == app["origin"]
        for origin in ("https://evil.org", "http://localhost:3000"):
            asked = await gateway.http.options("/models", headers={"origin": origin} | preflight)
            assert "access-control-allow-origin" not in asked.headers


async def test_if_there_are_keys_a_request_needs_one(gateway: Serving):
    key = await gateway.add_key("ann", "chat")
    for path in ("/chat/completions", "/feedback"):
        answer = await gateway.http.post(path, json={"model": "tiny", "messages": USER})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (await gateway.http.get("/models")).status_code == 401
    assert (await gateway.http.get(root(gateway) + "/metrics")).status_code == 401
    for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
        assert (await gateway.http.get("/models", headers=headers)).status_code == 200
    wrong = await gateway.http.get("/models", headers={"authorization": "Bearer aw-wrong"})
    assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, "Bearer")


async def test_each_scope_permits_its_own_endpoint(gateway: Serving):
    doors = {
        "chat": ("POST", gateway.url + "/chat/completions", {"model": "tiny", "messages": USER}),
        "teach": ("POST", gateway.url + "/feedback", {"response_id": "x", "thumb": "up"}),
        "read": ("GET", root(gateway) + "/metrics", None),
    }
    for held in doors:
        key = await gateway.add_key(held, held)
        for needed, (method, url, body) in doors.items():
            answer = await gateway.http.request(
                method, url, json=body, headers={"authorization": f"Bearer {key}"}
            )
            assert (answer.status_code == 403) == (held != needed)


async def test_probes_need_no_key_and_see_only_the_status(gateway: Serving):
    key = await gateway.add_key("ann", "read")
    bare = await gateway.http.get(root(gateway) + "/readyz")
    assert (bare.status_code, bare.json()) == (200, {"status": "ready"})
    full = await gateway.http.get(root(gateway) + "/readyz", headers={"x-api-key": key})
    assert "stages" in full.json()


async def test_nothing_that_was_said_reaches_the_log(gateway: Serving, caplog):
    caplog.set_level("DEBUG")
    secret = "the-secret-word"
    gateway.says[:] = [f"{secret} indeed"]
    await gateway.ask([{"role": "user", "content": secret}])
    await gateway.ask([{"role": secret, "content": secret}])
    gateway.engine.fail_after = 2
    await gateway.ask([{"role": "user", "content": secret}], stream=True)
    ours = [
        record.getMessage() for record in caplog.records if record.name.startswith(("afterwit", "uvicorn"))
    ]
    assert ours
    assert not any(secret in line for line in ours)
