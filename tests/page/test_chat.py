"""The page's chat: answered by the gateway's endpoint, recorded as a client's turn, taught in place."""

from __future__ import annotations

import re

import httpx
import pytest

from afterwit.page.chat import CLIENT
from afterwit.turn import Message
from tests.gateway.serving import Serving, parse_stream
from tests.page.pages import Tags, token_of


async def say(
    browser: httpx.AsyncClient, words: str, page: str = "/ui/chat", **fields: str
) -> httpx.Response:
    shown = await browser.get(page)
    after = re.search(r'name="after" value="([^"]+)"', shown.text)
    known = {"form": token_of(shown), "words": words} | ({"after": after[1]} if after else {})
    return await browser.post("/ui/chat", data=known | fields)


async def test_what_is_typed_is_answered_in_a_stream_and_recorded_like_any_clients_turn(
    browser: httpx.AsyncClient, gateway: Serving
):
    for page in ("/ui", "/ui/chat"):
        shown = Tags((await browser.get(page)).text)
        assert [fields["action"] for tag, fields in shown.tags if tag == "form" and fields.get("id")] == [
            "/ui/chat"
        ]
        assert gateway.url in shown.words
    answer = await say(browser, " Hello,\r\nyou. ")
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks = parse_stream(answer.content)
    assert (
        "".join(each["choices"][0]["delta"].get("content", "") for each in chunks if each["choices"])
        == "Hello there."
    )
    (record,) = await gateway.records()
    assert record.turn.scope == f"local/{CLIENT}"
    assert record.turn.teaches
    assert record.turn.conversation.messages[-1] == Message(role="user", content="Hello,\nyou.")
    place = [answer.headers[f"x-afterwit-{name}"] for name in ("session", "turn")]  # which the script opens
    assert place == [record.turn.session, record.turn.id]


async def test_a_conversation_goes_on_on_its_own_page_where_its_answers_are_taught(
    browser: httpx.AsyncClient, gateway: Serving
):
    await say(browser, "Hello.")
    (first,) = await gateway.records()
    page = f"/ui/sessions/{first.turn.session}"
    gateway.says[:] = ["I am well."]
    assert (await say(browser, "How are you?", page)).status_code == 200
    _, second = await gateway.records()
    assert (second.turn.session, second.turn.parent) == (first.turn.session, first.turn.id)
    said = [message.content for message in second.turn.conversation.messages]
    assert said == ["Hello.", "Hello there.", "How are you?"]
    assert f'value="{second.turn.id}"' in (await browser.get(page)).text


async def test_agents_conversations_and_those_of_other_keys_do_not_go_on_here(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.ask()
    (agents,) = await gateway.records()
    assert 'id="chat"' not in (await browser.get(f"/ui/sessions/{agents.turn.session}")).text
    for after in (agents.turn.id, "none"):
        refused = await say(browser, "And now?", after=after)
        assert refused.status_code == 404
        assert "begin a new one" in refused.json()["error"]["message"]
    assert len(await gateway.records()) == 1


async def test_nothing_typed_a_foreign_form_and_no_visit_are_refused(
    browser: httpx.AsyncClient, gateway: Serving
):
    empty = await say(browser, " \r\n ")
    assert (empty.status_code, empty.json()["error"]["message"]) == (
        400,
        "Type what the model should answer.",
    )
    assert (await say(browser, "Hello.", form="0" * 64)).status_code == 403
    form = token_of(await browser.get("/ui/chat"))
    browser.cookies.clear()
    assert (await browser.post("/ui/chat", data={"form": form, "words": "Hello."})).status_code == 401
    assert await gateway.records() == []


@pytest.mark.parametrize("scopes", [("read",), ("read", "chat")])
async def test_a_key_chats_if_it_may_chat(
    browser: httpx.AsyncClient, gateway: Serving, scopes: tuple[str, ...]
):
    key = {"x-api-key": await gateway.add_key("reader", *scopes)}
    page = await browser.get("/ui/chat", headers=key)
    assert ('id="chat"' in page.text) == ("chat" in scopes)
    data = {"form": token_of(page), "words": "Hello."}
    answer = await browser.post("/ui/chat", data=data, headers=key)
    assert answer.status_code == (200 if "chat" in scopes else 403)
    assert [record.turn.scope for record in await gateway.records()] == [f"reader/{CLIENT}"] * (
        "chat" in scopes
    )
