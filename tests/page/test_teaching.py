"""A turn is taught on the page: by a thumb, by a hint in words, and by a better answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.lifecycle import State
from afterwit.verdict import Feedback
from afterwit.version import Version
from tests.gateway.serving import Serving, serving
from tests.page.pages import Tags, token_of


async def roll_back(target: int) -> Version:
    raise AssertionError("no one asked for it")


@pytest.fixture
async def gateway(tmp_path: Path, renderer: Renderer) -> AsyncIterator[Serving]:
    async with serving(tmp_path, renderer, roll_back=roll_back) as made:
        await made.ask()
        yield made


async def taught(gateway: Serving, browser: httpx.AsyncClient, **said: str) -> httpx.Response:
    (record,) = await gateway.records()
    form = token_of(await browser.get("/ui"))
    return await browser.post(f"/ui/turns/{record.turn.id}/feedback", data={"form": form, **said})


async def feedback_on(gateway: Serving) -> Feedback | None:
    (record,) = await gateway.records()
    return None if record.next_state is None else record.next_state.feedback


async def test_a_thumb_a_hint_and_a_better_answer_are_recorded_together(
    gateway: Serving, browser: httpx.AsyncClient
):
    await taught(gateway, browser, thumb="down")
    await taught(gateway, browser, hint="Greet by one word only.")
    done = await taught(gateway, browser, correction="Hi.\r\nYou?")
    assert (done.status_code, "given=judged" in done.headers["location"]) == (303, True)
    given = Feedback(reward=-1, hint="Greet by one word only.", correction="Hi.\nYou?")
    assert await feedback_on(gateway) == given
    assert len(gateway.woken) == 3
    shown = Tags((await browser.get(done.headers["location"])).text).words
    assert "Recorded; the turn will be judged with it." in shown
    assert "Greet by one word only." in shown
    assert "Nothing so far." not in shown


async def test_a_hint_alone_is_shown_without_an_empty_line_of_feedback(
    gateway: Serving, browser: httpx.AsyncClient
):
    done = await taught(gateway, browser, hint="Greet by one word only.")
    shown = Tags((await browser.get(done.headers["location"])).text).words
    assert "Greet by one word only." in shown
    assert "Feedback:" not in shown


@pytest.mark.parametrize("said", [{"correction": "Hello there."}, {"hint": "Brief!"}, {}, {"text": "Hm."}])
async def test_what_cannot_teach_is_refused_with_its_reason(
    gateway: Serving, browser: httpx.AsyncClient, said: dict[str, str]
):
    refused = await taught(gateway, browser, **said)
    assert refused.status_code == 400
    assert "This was not done" in refused.text
    assert await feedback_on(gateway) is None


async def test_a_form_of_another_visit_teaches_nothing(gateway: Serving, browser: httpx.AsyncClient):
    (record,) = await gateway.records()
    data = {"form": "0" * 64, "thumb": "up"}
    refused = await browser.post(f"/ui/turns/{record.turn.id}/feedback", data=data)
    assert (refused.status_code, record.state) == (403, State.OPEN)
    assert await feedback_on(gateway) is None


async def test_a_session_reads_as_a_conversation_and_is_taught_in_place(
    gateway: Serving, browser: httpx.AsyncClient
):
    (record,) = await gateway.records()
    shown = Tags((await browser.get(f"/ui/sessions/{record.turn.session}")).text)
    asked = record.turn.conversation.messages[-1].content
    assert shown.words.index(asked) < shown.words.index("Hello there.")
    done = await taught(gateway, browser, thumb="up", session=record.turn.session)
    assert done.headers["location"].startswith(f"/ui/sessions/{record.turn.session}?given=judged#turn-")
