"""Models, health and metrics."""

from __future__ import annotations

import asyncio
import threading

import pytest

from afterwit import __version__
from tests.gateway.serving import Serving


@pytest.fixture
def root(gateway: Serving) -> str:
    return gateway.url.removesuffix("/v1")


async def test_models_have_a_context_length(gateway: Serving):
    listed = (await gateway.http.get("/models")).json()
    assert [model["id"] for model in listed["data"]] == ["tiny", "afterwit"]
    one = (await gateway.http.get("/models/tiny")).json()
    assert one == listed["data"][0]
    assert one["context_length"] == one["max_model_len"] == 2048
    assert (await gateway.http.get("/models/other")).json()["error"]["code"] == "model_not_found"


async def test_the_root_gives_name_and_version(gateway: Serving, root: str):
    assert (await gateway.http.get(root + "/")).json() == {"name": "afterwit", "version": __version__}
    assert (await gateway.http.get(root + "/healthz")).json() == {"status": "ok"}


async def test_a_caller_behind_a_proxy_on_this_machine_is_of_another_machine(gateway: Serving, root: str):
    asked = [
        await gateway.http.get(root + "/healthz", headers={"x-forwarded-for": address})
        for address in ("203.0.113.9", "127.0.0.1, 203.0.113.9", "127.0.0.1")
    ]
    assert [answer.status_code for answer in asked] == [403, 403, 200]


async def test_readyz_shows_the_message_of_every_stage_and_a_broken_learner_does_not_stop_serving(
    gateway: Serving, root: str
):
    await gateway.store.call(lambda store: store.set_status("judge", True, "Idle.", now=1.0))
    await gateway.store.call(lambda store: store.set_status("learn", False, "Out of memory.", now=2.0))
    answer = await gateway.http.get(root + "/readyz", headers=gateway.owner)
    assert answer.status_code == 200
    page = answer.json()
    assert (page["status"], page["version"]) == ("degraded", 3)
    assert [(stage["stage"], stage["ok"]) for stage in page["stages"]] == [
        ("gateway", True),
        ("judge", True),
        ("learn", False),
    ]
    assert page["stages"][2]["message"] == "Out of memory."


async def test_readyz_says_that_a_server_of_its_own_is_gone(gateway: Serving, root: str):
    gateway.servers["judge"] = "the judge server ended (-9); it starts again in 2 s"
    page = (await gateway.http.get(root + "/readyz", headers=gateway.owner)).json()
    assert page["status"] == "degraded"
    assert [stage["message"] for stage in page["stages"] if not stage["ok"]] == [gateway.servers["judge"]]
    assert page["stages"][1]["stage"] == "judge server"


async def test_readyz_says_that_a_person_paused_learning(gateway: Serving, root: str):
    await gateway.store.call(lambda store: store.pause("Bob says odd things", now=5.0))
    page = (await gateway.http.get(root + "/readyz", headers=gateway.owner)).json()
    assert page["paused"] == {"since": 5.0, "words": "Bob says odd things"}
    assert page["status"] == "ready"
    await gateway.store.call(lambda store: store.resume())
    assert (await gateway.http.get(root + "/readyz", headers=gateway.owner)).json()["paused"] is None


async def test_metrics_count_requests_tokens_turns_and_stages(gateway: Serving, root: str):
    await gateway.store.call(lambda store: store.set_status("learn", False, "Out of memory.", now=2.0))
    usage = (await gateway.ask()).json()["usage"]
    await gateway.ask(presence_penalty=1)
    await gateway.ask(model="other")
    lines = (await gateway.http.get(root + "/metrics", headers=gateway.owner)).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    expected = {
        'afterwit_requests_total{route="/v1/chat/completions",status="200"}': 2,
        'afterwit_requests_total{route="/v1/chat/completions",status="404"}': 1,
        'afterwit_tokens_total{kind="prompt"}': 2 * usage["prompt_tokens"],
        'afterwit_tokens_total{kind="completion"}': 2 * usage["completion_tokens"],
        'afterwit_turns{reason="",state="OPEN"}': 1,
        'afterwit_turns{reason="penalties",state="SKIPPED"}': 1,
        'afterwit_stage_ok{stage="gateway"}': 1,
        'afterwit_stage_ok{stage="learn"}': 0,
        "afterwit_weight_version": 3,
        "afterwit_choices_in_flight": 0,
        "afterwit_response_seconds_count": 2,
        "afterwit_first_token_seconds_count": 2,
    }
    assert {name: float(values[name]) for name in expected} == expected


async def test_pages_do_not_wait_for_a_store_that_another_process_holds(gateway: Serving):
    """Programs that ask whether the server lives would end it."""
    assert (await gateway.ask()).status_code == 200
    held = threading.Event()
    holding = asyncio.ensure_future(gateway.store.call(lambda store: held.wait(60)))
    try:
        root = gateway.url.removesuffix("/v1")
        gateway.clock.at += 10.0
        alive = await gateway.http.get(root + "/healthz")
        ready = await gateway.http.get(root + "/readyz", headers=gateway.owner)
        assert (alive.status_code, holding.done()) == (200, False)
        assert "The store does not answer" in ready.text
    finally:
        held.set()
        await holding
