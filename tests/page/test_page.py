"""The page without a browser: sign-in, the content of each view, and that no recorded text becomes markup."""

from __future__ import annotations

import asyncio
import re
from html import escape, unescape

import httpx
import pytest

from afterwit.judging.ability import keep_shares
from afterwit.page.access import FORM_TYPE
from afterwit.promotion.episodes import Event, EventKind
from afterwit.store import Store
from afterwit.turn import Conversation, Kind, Message
from afterwit.verdict import Feedback, Question, Source, Verdict, Vote
from afterwit.version import Origin, SuiteResult
from tests.gateway.serving import Serving
from tests.page.pages import Tags, played, token_of
from tests.store.examples import a_version, add, add_judged

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)> {{7*7}} &amp; \"'"
VIEWS = (
    "",
    "/sessions",
    "/sessions/session",
    "/turns",
    "/turns/t1",
    "/versions",
    "/versions/1",
    "/judge",
    "/curves",
    "/overview",
    "/chat",
)


async def test_a_browser_that_asks_for_the_root_is_led_to_the_page(browser: httpx.AsyncClient):
    answer = await browser.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert (await browser.get("/", headers={"accept": "*/*"})).json()["name"] == "afterwit"


async def test_an_empty_store_says_where_to_point_an_agent(browser: httpx.AsyncClient, gateway: Serving):
    for view in ("", "/sessions", "/turns", "/versions", "/judge", "/curves", "/overview", "/chat"):
        assert (await browser.get(f"/ui{view}")).status_code == 200
    assert gateway.url in Tags((await browser.get("/ui")).text).words.replace(" ", "")


async def test_every_view_has_a_heading_a_language_and_nothing_inline(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.store.call(played)
    for view in VIEWS:
        answer = await browser.get(f"/ui{view}")
        assert answer.status_code == 200, answer.text
        page = Tags(answer.text)
        assert [tag for tag, _ in page.tags].count("h1") == 1
        assert ("html", {"lang": "en"}) in page.tags
        for tag, attributes in page.tags:
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)
            if tag in ("script", "link", "img"):
                assert (attributes.get("src") or attributes.get("href") or "").startswith("/ui/static/")
        named = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(named) == len(set(named))


async def test_a_strict_policy_and_no_cache_are_on_every_page(browser: httpx.AsyncClient):
    headers = (await browser.get("/ui")).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


async def test_files_of_the_page_are_kept_by_browsers_and_nothing_else_is_there(browser: httpx.AsyncClient):
    page = Tags((await browser.get("/ui")).text)
    links = [
        attributes.get("src") or attributes.get("href")
        for tag, attributes in page.tags
        if tag in ("script", "link")
    ]
    assert len(links) == 4  # with nothing recorded, the chat's script too
    for link in links:
        answer = await browser.get(link or "")
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for name in ("nothing.css", "..%2Fapp.py", "layout.html"):
        assert (await browser.get(f"/ui/static/{name}")).status_code == 404


async def test_the_overview_says_what_was_learned_what_waits_and_what_was_held_back(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.store.call(played)
    words = " ".join(Tags((await browser.get("/ui/overview")).text).words.split())
    assert "Yes: 1 turn so far." in words
    assert "for the learner 1" in words
    assert "An update was held back." in words
    assert "Version 1 is served." in words


async def test_the_overview_says_that_all_learning_was_taken_back(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.store.call(played)
    back = a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,))
    await gateway.store.call(lambda store: store.commit_version(back, now=9.0))
    words = " ".join(Tags((await browser.get("/ui/overview")).text).words.split())
    assert "Yes, but all that it had learned was taken back or forgotten." in words
    assert "Last: version 2 takes learning back: it has the weights of version 0," in words


async def test_the_versions_name_what_was_run_again_and_how_much_was_lost(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.store.call(played)
    lost = SuiteResult(lost={"text": (1, 6)}, evidence=0.0)
    again = a_version(2, origin=Origin.REPLAY, suite=lost)
    await gateway.store.call(lambda store: store.commit_version(again, now=9.0))
    words = " ".join(Tags((await browser.get("/ui/versions")).text).words.split())
    assert "earlier updates lost 1 of 6 approved text" in words


async def test_a_judge_that_cannot_judge_is_the_first_thing_that_is_said(
    browser: httpx.AsyncClient, gateway: Serving
):
    fault = "This model cannot judge: 0 of 3 probe answers carried a readable vote."

    async def first_card() -> str:
        page = (await browser.get("/ui/overview")).text
        return page[page.index("q-learning") : page.index("q-waits")]

    await gateway.store.call(lambda store: store.set_status("learn", True, "it waits", now=1.0))
    await gateway.store.call(lambda store: store.set_status("judge", False, fault, now=1.0))
    card = await first_card()
    assert 'class="answer problem">Not yet, and the judge has a problem.' in card
    assert f'<p class="problem">{fault}' in card
    await gateway.store.call(played)
    assert "Only from evidence that needs no judge." in await first_card()
    await gateway.store.call(lambda store: store.set_status("judge", True, "working", now=2.0))
    assert 'class="answer">Yes: 1 turn so far.' in await first_card()
    assert '<p class="note">it waits' in await first_card()


async def test_a_hint_in_the_persons_own_words_is_marked_as_such(
    browser: httpx.AsyncClient, gateway: Serving
):
    words = "Keep it short."
    vote = Vote(question=Question.OWN_WORDS, words="a complaint", value=-1, hint=words)
    verdict = Verdict(reward=-1, source=Source.READ, hints=(words,), votes=(vote,))
    await gateway.store.call(lambda store: add_judged(store, "own", verdict))
    page = " ".join(Tags((await browser.get("/ui/turns/own")).text).words.split())
    assert "decided by how the reply was read" in page
    assert "hint, in the person's own words Keep it short." in unescape(page)


async def test_a_turn_shows_its_tokens_votes_hints_and_what_followed(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.ask()
    turn = (await gateway.records())[0].turn.id
    await gateway.store.call(
        lambda store: store.feedback(turn, Feedback(reward=-1, text="Too short."), now=1.0)
    )
    page = (await browser.get(f"/ui/turns/{turn[:10]}")).text
    tokens = re.findall(r'<span class="t none d(\d) v3"[^>]*>([^<]*)</span>', page)
    assert "".join(unescape(text) for _, text in tokens).startswith("Hello there.")
    assert "Too short." in page
    await gateway.store.call(played)
    page = " ".join(Tags((await browser.get("/ui/turns/t1")).text).words.split())
    assert "No, the other file." in page
    assert "hint Open the file that was named." in page
    assert "hint not valid (no box)" in page
    assert "version 1" in page


async def test_a_practised_answer_is_marked_on_its_own_page(browser: httpx.AsyncClient, gateway: Serving):
    await gateway.store.call(lambda store: add(store, "own", kind=Kind.PRACTICE))
    await gateway.store.call(lambda store: add(store, "asked"))
    marked = '<span class="tag">practice</span>'
    pages = [(await browser.get(f"/ui/turns/{turn}")).text for turn in ("own", "asked")]
    assert [marked in page for page in pages] == [True, False]


async def test_what_was_said_is_never_markup(browser: httpx.AsyncClient, gateway: Serving):
    def say(store: Store) -> None:
        said = Message(role="user", content=HOSTILE)
        vote = Vote(question=Question.HINT, words=HOSTILE, value=None, rejected=HOSTILE)
        verdict = Verdict(reward=-1, source=Source.VOTES, hints=(HOSTILE,), votes=(vote,))
        add_judged(
            store,
            "bad",
            verdict,
            session=HOSTILE,
            scope=HOSTILE + "/x",
            conversation=Conversation(messages=(said,)),
            message=Message(role="assistant", content=HOSTILE),
        )
        store.answer("bad", [said], answered_by=None, now=1.0)
        store.set_status("learn", False, HOSTILE, now=1.0)
        store.set_status("practice", False, HOSTILE, now=1.0)
        store.teach(store.turn("bad").sampled_turn, HOSTILE, now=1.0)
        store.decided(Event(kind=EventKind.HOLD, at=1.0, version=0, evidence=1.0, words=HOSTILE))

    await gateway.store.call(say)
    pages = [
        await browser.get(f"/ui{view}")
        for view in ("", "/sessions", "/turns", "/turns/bad", "/versions", "/overview", "/lessons/1")
    ]
    link = re.search(r'href="(/ui/sessions/[^"]+)"', pages[1].text)
    assert link is not None
    pages.append(await browser.get(unescape(link[1])))
    pages.append(await browser.get("/ui/turns?state=%3Cscript%3E&reason=%3Cb%3E&before=%3Ci%3E&version=x"))
    for page in pages:
        assert page.status_code == 200
        read = Tags(page.text)
        assert all("live.js" in (attributes["src"] or "") for tag, attributes in read.tags if tag == "script")
        assert "img" not in [tag for tag, _ in read.tags]
    assert "49" not in Tags(pages[3].text).words
    assert HOSTILE in Tags(pages[3].text).words


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5_000, "-1", "x", "\u00b2"])
async def test_a_number_that_nothing_has_is_not_found(browser: httpx.AsyncClient, number: str):
    assert (await browser.get(f"/ui/versions/{number}")).status_code == 404
    for field in ("/ui/turns?before=", "/ui/turns?version=", "/ui/versions?made="):
        assert (await browser.get(f"{field}{number}")).status_code == 200


async def test_lists_go_on_where_the_page_before_ended(browser: httpx.AsyncClient, gateway: Serving):
    def many(store: Store) -> None:
        for number in range(120):
            add(store, f"turn{number:03}", session=f"session{number:03}", now=float(number))

    await gateway.store.call(many)
    for view, kind in (("/ui/turns", "turns/turn"), ("/ui/sessions", "sessions/session")):
        seen: list[str] = []
        address: str | None = view
        while address is not None:
            page = (await browser.get(address)).text
            seen += re.findall(rf"/ui/{kind}(\d+)", page)
            older = re.search(r'rel="next" href="([^"]+)"', page)
            address = None if older is None else unescape(older[1])
        assert seen == [f"{number:03}" for number in reversed(range(120))]


async def test_sessions_are_searched_and_lists_are_of_one_client(
    browser: httpx.AsyncClient, gateway: Serving
):
    def several(store: Store) -> None:
        for at in range(3):
            said = Conversation(messages=(Message(role="user", content=f"Where is <b>harbour</b> {at}?"),))
            add(store, f"t{at}", session=f"s{at}", scope=f"key/{at % 2}", conversation=said)

    await gateway.store.call(several)
    for address, turns in {
        "/sessions?words=HARBOUR": ["t2", "t1", "t0"],
        "/sessions?words=harbour+1&client=key/1": ["t1"],
        "/sessions?words=harbour+1&client=key/0": [],
        "/sessions?words=where%20is%20nothing": [],
    }.items():
        page = Tags((await browser.get(f"/ui{address}")).text)
        links = [fields.get("href") or "" for tag, fields in page.tags if tag == "a"]
        assert [link.split("/")[-1] for link in links if link.startswith("/ui/turns/")] == turns, address
        if turns:
            assert "Where is <b>harbour</b> 1?" in page.words
        else:
            assert "No turn with all of" in page.words
    for view in ("sessions", "turns"):
        page = (await browser.get(f"/ui/{view}?client=key/1")).text
        assert re.findall(rf"/ui/{view}/([st]\d)", page) == [f"{view[0]}1"]
        assert "<option selected>key/1</option>" in page
        assert len(re.findall(rf"/ui/{view}/([st]\d)", (await browser.get(f"/ui/{view}?client=x")).text)) == 3


async def test_a_conversation_is_shown_up_to_the_turn_that_a_link_names(
    browser: httpx.AsyncClient, gateway: Serving
):
    def long(store: Store) -> None:
        for at in range(30):
            add(store, f"t{at:02}", session="long")

    await gateway.store.call(long)
    for turn, first, last in (("t29", "t18", "t29"), ("t20", "t18", "t29"), ("t03", "t00", "t03")):
        page = (await browser.get(f"/ui/sessions/long?turn={turn}")).text
        shown = re.findall(r'id="turn-(t\d\d)"', page)
        assert (shown[0], shown[-1]) == (first, last)
    assert (await browser.get("/ui/sessions/long?turn=none")).status_code == 404


async def test_what_is_not_there_is_said(browser: httpx.AsyncClient, gateway: Serving):
    for view in ("/turns/none", "/sessions/none", "/versions/9", "/nothing"):
        answer = await browser.get(f"/ui{view}")
        assert answer.status_code == 404
        assert "There is nothing here" in answer.text


async def test_an_address_with_a_slash_at_its_end_leads_to_the_view(browser: httpx.AsyncClient):
    for view in ("", "/turns", "/sessions", "/versions"):
        moved = await browser.get(f"/ui{view}/")
        assert (moved.status_code, moved.headers["location"]) == (303, f"/ui{view}")
    assert (await browser.post("/ui/turns/")).status_code == 404


async def test_without_keys_the_page_and_all_that_reads_opens_by_the_token_alone(gateway: Serving):
    """Any program of this machine may call: a tool that fetches addresses for an agent too."""
    token = gateway.app.gateway.token
    root = gateway.url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=root, verify=False) as tool:
        for address in ("/ui", "/ui/turns", "/ui?token=", "/ui?token=aw-guessed"):
            answer = await tool.get(address)
            assert (answer.status_code, "Token" in answer.text) == (401, True)
        assert (await tool.get("/metrics")).status_code == 403
        assert "stages" not in (await tool.get("/readyz")).json()
        assert (await tool.get("/readyz", headers={"x-api-key": token})).json()["stages"]
        entered = await tool.get("/ui/turns", params={"token": token, "state": "OPEN"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/ui/turns?state=OPEN")
        assert (await tool.get("/ui")).status_code == 200
        await gateway.add_key("agent", "chat")
        assert (await tool.get("/ui")).status_code == 401
        assert (await tool.get("/ui", params={"token": token})).status_code == 401


async def test_of_too_many_forms_that_are_half_sent_the_oldest_is_cut_off(gateway: Serving):
    gateway.app.gateway.in_flight.limit = 2
    host, port = httpx.URL(gateway.url).host, httpx.URL(gateway.url).port
    fields = (
        "POST /ui/sign-in HTTP/1.1",
        f"Host: {host}",
        "Content-Length: 99",
        f"Content-Type: {FORM_TYPE}",
    )
    head = "\r\n".join(fields) + "\r\n\r\nf"
    opened = [await asyncio.open_connection(host, port) for _ in range(3)]
    for _, writer in opened:
        writer.write(head.encode())
        await writer.drain()
    assert b" 408 " in await asyncio.wait_for(opened[0][0].readline(), 5)
    for _, writer in opened:
        writer.close()


async def test_with_keys_every_address_gives_the_same_way_in(browser: httpx.AsyncClient, gateway: Serving):
    await gateway.store.call(played)
    await gateway.add_key("reader", "read")
    answers = [await browser.get(f"/ui{view}") for view in (*VIEWS, "/nothing", "/turns/none")]
    answers.append(await browser.post("/ui/versions/0/rollback"))
    answers.append(await browser.post("/ui/learning/pause"))
    assert {answer.status_code for answer in answers} == {401}
    back = re.compile(r'name="then" value="(.*)"')
    assert len({back.sub("", answer.text) for answer in answers}) == 1
    assert back.findall(answers[1].text) == [f"/ui{VIEWS[1]}"]
    assert "afterwit keys add" in answers[0].text
    assert "t1" not in answers[0].text


async def test_a_key_signs_in_if_it_may_read_and_its_visit_ends_with_it(
    browser: httpx.AsyncClient, gateway: Serving
):
    await gateway.store.call(played)
    await gateway.add_key("reader", "read")
    await gateway.add_key("agent", "chat", "teach")
    form = token_of(await browser.get("/ui"))
    refused = [
        await browser.post("/ui/sign-in", data={"form": form, "key": key}) for key in ("aw-agent", "aw-x", "")
    ]
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.text for answer in refused}) == 1
    signed = await browser.post("/ui/sign-in", data={"form": form, "key": " aw-reader "})
    cookie = signed.headers["set-cookie"].lower()
    assert signed.status_code == 303
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "aw-reader" not in cookie
    assert "Sign out reader" in (await browser.get("/ui")).text
    await gateway.store.call(lambda store: store.revoke_key("reader", now=1.0))
    gateway.clock.at += 10.0
    assert (await browser.get("/ui")).status_code == 401


@pytest.mark.parametrize(
    ("asked", "then"),
    [
        ("/ui/turns?state=trained&q=a%26b", "/ui/turns?state=trained&q=a%26b"),
        ("/ui", "/ui"),
        ("/ui/sign-in", "/ui"),
    ],
)
async def test_signing_in_leads_to_the_page_that_was_asked_for(
    browser: httpx.AsyncClient, gateway: Serving, asked: str, then: str
):
    await gateway.add_key("reader", "read")
    page = await browser.get(asked)
    fields = {
        name: unescape(value) for name, value in re.findall(r'name="(form|then)" value="(.*)"', page.text)
    }
    refused = await browser.post("/ui/sign-in", data={**fields, "key": "aw-x"})
    assert f'value="{escape(then)}"' in refused.text
    signed = await browser.post("/ui/sign-in", data={**fields, "key": "aw-reader"})
    assert (signed.status_code, signed.headers["location"]) == (303, then)


@pytest.mark.parametrize("then", ["https://evil.example/ui", "//evil.example", "/v1/models", "/uix", ""])
async def test_signing_in_leads_to_the_page_alone(browser: httpx.AsyncClient, gateway: Serving, then: str):
    await gateway.add_key("reader", "read")
    form = token_of(await browser.get("/ui"))
    signed = await browser.post("/ui/sign-in", data={"form": form, "key": "aw-reader", "then": then})
    assert signed.headers["location"] == "/ui"


@pytest.mark.parametrize("way", ["/ui/sign-in", "/ui/sign-out"])
async def test_a_form_that_cannot_be_taken_leads_back_to_the_way_in_with_the_reason(
    browser: httpx.AsyncClient, gateway: Serving, way: str
):
    await gateway.add_key("reader", "read")
    stale = await browser.post(way, data={"form": "of another visit", "key": "aw-reader"})
    strange = await browser.post(way, json={"key": "aw-reader"})
    for answer, status, reason in (
        (stale, 403, "This form was made for another visit, or before a restart: load the page again."),
        (strange, 415, "A form sends application/x-www-form-urlencoded."),
    ):
        assert answer.status_code == status
        assert reason in Tags(answer.text).words
        assert 'action="/ui/sign-in"' in answer.text


async def test_a_visit_ends_by_signing_out_and_after_its_time(browser: httpx.AsyncClient, gateway: Serving):
    await gateway.add_key("reader", "read")
    for leave in (True, False):
        browser.cookies.clear()
        form = token_of(await browser.get("/ui"))
        await browser.post("/ui/sign-in", data={"form": form, "key": "aw-reader"})
        page = await browser.get("/ui")
        assert page.status_code == 200
        if leave:
            ((name, kept),) = browser.cookies.items()
            assert name == f"afterwit-page-{browser.base_url.port}"  # a gateway on another port has its own
            assert (await browser.post("/ui/sign-out", data={"form": token_of(page)})).status_code == 303
            browser.cookies.set(name, kept, path="/ui")
        else:
            gateway.clock.at += 13 * 3600.0
        assert (await browser.get("/ui")).status_code == 401


async def test_a_key_in_the_header_opens_the_page_too(browser: httpx.AsyncClient, gateway: Serving):
    await gateway.add_key("reader", "read")
    await gateway.add_key("agent", "chat")
    assert (await browser.get("/ui", headers={"x-api-key": "aw-reader"})).status_code == 200
    assert (await browser.get("/ui", headers={"x-api-key": "aw-agent"})).status_code == 401


async def test_the_judges_page_says_what_is_known_and_what_is_wrong(
    browser: httpx.AsyncClient, gateway: Serving
):
    assert "Nothing has been judged yet." in (await browser.get("/ui/judge")).text
    await gateway.store.call(played)
    words = Tags((await browser.get("/ui/judge")).text).words
    assert "No fault was found." in words
    assert "1 of 3 (6% to 79%)" in words
    await gateway.store.call(lambda store: keep_shares(store, {"invalid": 0.25}))
    metrics = await browser.get("/metrics", headers=gateway.owner)
    assert 'afterwit_judge_share{check="invalid"} 0.25' in metrics.text
