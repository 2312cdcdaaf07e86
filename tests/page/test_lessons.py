"""The home: the verdict, each lesson in words, the orders about one, and the ways from it and to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.lifecycle import Reason, State
from afterwit.page.lessons import LESSONS
from afterwit.practice.lessons import Fresh
from afterwit.practice.table import lessons
from afterwit.progress import progress
from afterwit.promotion.watch import requests_asked
from afterwit.store import Store
from afterwit.turn import Conversation, Kind, Message
from afterwit.version import Effect, Version
from tests.gateway.serving import Serving, serving
from tests.page.pages import Tags, token_of
from tests.store.examples import a_version, add_judged

SHORT = "Keep <b>it</b> short."


def corrected(store: Store, id: str, words: str, *, now: float, **changes: str) -> int:
    asked = Conversation(messages=(Message(role="user", content=f"Explain {id}."),))
    answer = Message(role="assistant", content=f"A long talk about {id}.")
    add_judged(store, id, now=now, session=id, conversation=asked, message=answer, **changes)
    return store.teach(store.turn(id).sampled_turn, words, now=now)


def practised(store: Store, number: int, count: int) -> None:
    """Add `count` answers that version 1 learned from, and one that waits."""
    lesson = store.lesson(number)
    prompt = store.turn(lesson.corrections[0].turn).sampled_turn
    said = Message(role="assistant", content="Short.")
    turns = [replace(prompt, id=f"p{at}", kind=Kind.PRACTICE, message=said) for at in range(count + 1)]
    assert store.practised(lesson, lesson.words, [Fresh(each, prompt.id) for each in turns], now=5.0)
    ids = [each.id for each in turns[:count]]
    effects = tuple(Effect(turn=id, before=0.0, after=0.0, hinted_before=-9.0) for id in ids)
    store.commit_version(replace(a_version(1, ids), effects=effects), now=6.0)


def taught(store: Store) -> int:
    number = corrected(store, "moon", SHORT, now=1.0)
    corrected(store, "sun", SHORT, now=2.0, scope="key/chat")
    practised(store, number, 2)
    return number


@pytest.fixture
async def gateway(tmp_path: Path, renderer: Renderer) -> AsyncIterator[Serving]:
    async def roll_back(target: int) -> Version:
        raise AssertionError("no one asked for it")

    async with serving(tmp_path, renderer, roll_back=roll_back) as made:
        yield made


async def ordered(browser: httpx.AsyncClient, number: object, order: str, **fields: str) -> httpx.Response:
    form = token_of(await browser.get("/ui"))
    return await browser.post(f"/ui/lessons/{number}/{order}", data={"form": form, **fields})


async def test_the_home_has_the_verdict_and_each_lesson_as_the_command_prints_them(
    browser: httpx.AsyncClient, gateway: Serving
):
    number = await gateway.store.call(taught)
    page = Tags((await browser.get("/ui")).text)
    words = " ".join(page.words.split())
    (row,) = await gateway.store.call(lessons)
    asked = await gateway.store.call(requests_asked)
    assert f"Do you correct it less than the original model? {progress(asked).sentence}" in words
    for told in (SHORT, row.how_far[1:], row.how_often[1:], "Explain moon.", "A long talk about moon."):
        assert told in words
    assert "version 0 Short." in words
    links = {fields.get("href") for tag, fields in page.tags if tag == "a"}
    assert {
        f"/ui/lessons/{number}",
        "/ui/sessions/moon?turn=moon#turn-moon",
        "/ui/sessions/sun?turn=sun#turn-sun",
    } <= links


async def test_conversations_turns_and_versions_lead_to_their_lesson(
    browser: httpx.AsyncClient, gateway: Serving
):
    number = await gateway.store.call(taught)
    for view in ("/sessions/moon", "/turns/sun", "/turns/p0", "/versions/1"):
        page = Tags((await browser.get(f"/ui{view}")).text)
        assert f"/ui/lessons/{number}" in {fields.get("href") for tag, fields in page.tags if tag == "a"}, (
            view
        )


async def test_a_lesson_is_edited_accepted_dropped_and_unlearned_by_buttons(
    browser: httpx.AsyncClient, gateway: Serving
):
    number = await gateway.store.call(taught)
    for order, fields, said in (
        ("edit", {"words": " Be\r\nbrief. "}, "taught in these words"),
        ("restrict", {"client": "key/chat"}, "that you chose"),
        ("restrict", {"client": ""}, "that you chose"),
        ("accept", {}, "on other prompts"),
        ("drop", {}, "not practised any more"),
        ("undo", {}, "unlearned next"),
    ):
        done = await ordered(browser, number, order, **fields)
        assert done.headers["location"] == f"/ui/lessons/{number}?done={order}"
        assert said in Tags((await browser.get(done.headers["location"])).text).words
    (row,) = await gateway.store.call(lessons)
    assert (row.words, row.general, row.progress.value, row.unlearning) == ("Be brief.", True, "dropped", "")
    orders = await gateway.store.call(lambda store: store.forget_orders())
    assert [order.session for order in orders] == [f"lesson:{number}"]
    status = "forgetting: update 3 of 11"
    await gateway.store.call(lambda store: store.set_status("learn", True, status, now=7.0))
    assert status in (await browser.get(f"/ui/lessons/{number}")).text
    waited = await gateway.store.call(lambda store: store.turn("p2"))
    assert (waited.state, waited.reason) == (State.SKIPPED, Reason.LESSON_CHANGED)


@pytest.mark.parametrize(
    ("number", "order", "words", "status", "why"),
    [
        (1, "edit", " \r\n ", 409, "a lesson has 1 to 1000 characters, not 0"),
        (1, "edit", "\u200b\u200b", 409, "a lesson has 1 to 1000 characters, not 0"),
        (1, "edit", "The key is AKIA" + "IOSFODNN7EXAMINE", 409, "these words hold a secret"),
        (9, "edit", "Be brief.", 409, "there is no lesson 9"),
        (9, "undo", "", 409, "there is no lesson 9"),
        (1, "restrict", "", 409, "lesson 1 was not given to key/none, but to key/agent, key/chat"),
        ("x", "drop", "", 404, "There is no such lesson."),
        (1, "burn", "", 404, "There is no such lesson."),
    ],
)
async def test_an_order_that_cannot_be_done_is_refused_in_one_line(
    browser: httpx.AsyncClient,
    gateway: Serving,
    number: object,
    order: str,
    words: str,
    status: int,
    why: str,
):
    await gateway.store.call(taught)
    refused = await ordered(browser, number, order, words=words, client="key/none")
    assert refused.status_code == status
    assert why in Tags(refused.text).words
    (row,) = await gateway.store.call(lessons)
    assert (row.words, row.progress.value) == (SHORT, "practising")


async def test_a_lesson_that_is_not_there_and_a_key_that_only_reads(
    browser: httpx.AsyncClient, gateway: Serving
):
    number = await gateway.store.call(taught)
    for other in (9, "x"):
        assert (await browser.get(f"/ui/lessons/{other}")).status_code == 404
    await gateway.add_key("reader", "read")
    reader = {"x-api-key": "aw-reader"}
    page = await browser.get("/ui", headers=reader)
    assert SHORT in Tags(page.text).words
    assert f"/ui/lessons/{number}/undo" not in page.text
    data = {"form": token_of(page)}
    answer = await browser.post(f"/ui/lessons/{number}/undo", data=data, headers=reader)
    assert answer.status_code == 403
    assert await gateway.store.call(lambda store: store.forget_orders()) == []


async def test_lessons_are_shown_of_one_key(browser: httpx.AsyncClient, gateway: Serving):
    def two(store: Store) -> None:
        corrected(store, "moon", "Be brief.", now=1.0)
        corrected(store, "sun", "Be kind.", now=2.0, scope="ann/chat")

    await gateway.store.call(two)
    for source, shown in (
        ("", {"Be brief.", "Be kind."}),
        ("?source=ann", {"Be kind."}),
        ("?source=x", set()),
    ):
        page = (await browser.get(f"/ui{source}")).text
        assert {words for words in ("Be brief.", "Be kind.") if words in page} == shown
        assert "/ui?source=ann" in page


async def test_more_lessons_than_fit_are_on_further_pages(browser: httpx.AsyncClient, gateway: Serving):
    def many(store: Store) -> None:
        for at in range(LESSONS + 1):
            corrected(store, f"t{at}", f"Say number {at} first.", now=1.0 + at)

    await gateway.store.call(many)
    first, second = [(await browser.get(f"/ui{more}")).text for more in ("", f"?before={LESSONS}")]
    assert (first.count("<article"), second.count("<article")) == (LESSONS, 1)
    assert f"/ui?before={LESSONS}" in first
    assert "Say number 0 first." in second
