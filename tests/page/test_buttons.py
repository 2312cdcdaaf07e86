"""The buttons: their effects, who may press them, and the forms that they accept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.errors import SettingError
from afterwit.lifecycle import State
from afterwit.page.app import roll_back
from afterwit.store import AsyncStore, Store
from afterwit.verdict import Flag
from afterwit.version import Origin, Probe, Version
from tests.gateway.serving import Serving, serving
from tests.page.pages import Tags, played, token_of
from tests.store.databases import store_in_memory
from tests.store.examples import HINTED, NO, a_version, add


class Buttons:
    """Rolls back to any version but 9."""

    def __init__(self) -> None:
        self.targets: list[int] = []

    async def roll_back(self, target: int) -> Version:
        if target == 9:
            raise SettingError("there is no version 9")
        self.targets.append(target)
        return a_version(2)


@pytest.fixture
def buttons() -> Buttons:
    return Buttons()


@pytest.fixture
async def gateway(tmp_path: Path, renderer: Renderer, buttons: Buttons) -> AsyncIterator[Serving]:
    async with serving(tmp_path, renderer, roll_back=buttons.roll_back) as made:
        await made.store.call(played)
        yield made


async def form(browser: httpx.AsyncClient) -> str:
    return token_of(await browser.get("/ui"))


async def test_rollback_is_done_and_what_cannot_be_done_is_said(browser: httpx.AsyncClient, buttons: Buttons):
    assert "Yes, take it back" in (await browser.get("/ui/versions/0")).text
    assert "Yes, take it back" not in (await browser.get("/ui/versions/1")).text  # the newest
    data = {"form": await form(browser)}
    done = await browser.post("/ui/versions/0/rollback", data=data)
    assert (done.status_code, done.headers["location"], buttons.targets) == (303, "/ui/versions?made=2", [0])
    assert "Version 2 was made" in (await browser.get(done.headers["location"])).text
    refused = await browser.post("/ui/versions/9/rollback", data=data)
    assert refused.status_code == 409
    assert "there is no version 9" in refused.text


async def test_learning_is_paused_with_a_reason_and_goes_on(browser: httpx.AsyncClient, gateway: Serving):
    data = {"form": await form(browser)}
    await browser.post("/ui/learning/pause", data={**data, "why": " <b>guests</b> "})
    page = await browser.get("/ui/overview")
    assert "No: learning is paused." in page.text
    assert "&lt;b&gt;guests&lt;/b&gt;" in page.text
    await browser.post("/ui/learning/resume", data=data)
    assert await gateway.store.call(lambda store: store.paused()) is None


async def test_a_doubtful_turn_waits_with_its_reason_until_a_person_decides(
    browser: httpx.AsyncClient, gateway: Serving
):
    def doubtful(store: Store) -> None:
        for turn in ("d1", "d2"):
            add(store, turn, now=80.0)
            store.answer(turn, NO, answered_by=None, now=80.0)
            store.claim("judge", owner="judge", limit=9, lease_s=60, now=80.0)
            store.judged(
                turn, HINTED, rl=True, opd=True, reason=None, owner="judge", now=80.0, flags=[Flag.LINK]
            )

    await gateway.store.call(doubtful)
    page = (await browser.get("/ui/review")).text
    assert page.count("an address that no person named") == 2
    data = {"form": await form(browser)}
    for turn, accept, said in (("d1", "yes", "it may train"), ("d2", "no", "it does not train")):
        done = await browser.post(f"/ui/turns/{turn}/review", data={**data, "accept": accept})
        assert said in (await browser.get(done.headers["location"])).text
    trained = await browser.post("/ui/turns/t1/review", data={**data, "accept": "no"})
    assert "nothing changed" in (await browser.get(trained.headers["location"])).text
    states = await gateway.store.call(lambda store: [store.turn(turn).state for turn in ("d1", "d2", "t1")])
    assert states == [State.JUDGED, State.SKIPPED, State.TRAINED]
    assert "Nothing waits for you." in (await browser.get("/ui/review")).text


async def test_a_session_is_excluded_and_let_in_again(browser: httpx.AsyncClient, gateway: Serving):
    data = {"form": await form(browser)}
    done = await browser.post("/ui/sessions/session/exclude", data=data)
    assert "This session teaches nothing" in (await browser.get(done.headers["location"])).text
    assert "t2" not in [turn.turn for turn in await gateway.store.call(lambda store: store.waiting(now=99.0))]
    await browser.post("/ui/sessions/session/include", data=data)
    assert await gateway.store.call(lambda store: store.excluded()) == frozenset()


async def test_a_key_that_only_reads_sees_no_button_and_presses_none(
    browser: httpx.AsyncClient, gateway: Serving, buttons: Buttons
):
    await gateway.add_key("reader", "read")
    await browser.post("/ui/sign-in", data={"form": await _form_of_401(browser), "key": "aw-reader"})
    for view in ("", "/overview", "/lessons/1", "/versions/0", "/sessions/session", "/review"):
        page = Tags((await browser.get(f"/ui{view}")).text)
        assert [fields["action"] for tag, fields in page.tags if tag == "form"] == ["/ui/sign-out"]
    answer = await browser.post("/ui/versions/0/rollback", data={"form": await form(browser)})
    assert (answer.status_code, buttons.targets) == (403, [])
    assert "lacks the scope" in Tags(answer.text).words


async def _form_of_401(browser: httpx.AsyncClient) -> str:
    page = await browser.get("/ui")
    assert page.status_code == 401
    return token_of(page)


async def test_forms_of_other_pages_and_of_other_shapes_are_refused(
    browser: httpx.AsyncClient, buttons: Buttons
):
    own, post = await form(browser), "/ui/versions/0/rollback"
    for wrong in ("0" * 64, "", "\u00e9"):
        assert (await browser.post(post, data={"form": wrong})).status_code == 403
    assert (await browser.post(post)).status_code == 415
    assert (await browser.post(post, json={"form": own})).status_code == 415
    assert (await browser.post(post, data={"form": own, "why": "x" * 200_000})).status_code == 413
    assert (
        await browser.post(post, data={"form": own} | dict.fromkeys(map(str, range(40)), ""))
    ).status_code == 413
    for number in ("9" * 30, "9" * 5_000, "-1", "x"):
        assert (await browser.post(post.replace("0", number), data={"form": own})).status_code == 404
    other = {"origin": "https://evil.example"}
    assert (await browser.post(post, data={"form": own}, headers=other)).status_code == 403
    assert (await browser.get(post)).status_code == 404
    assert buttons.targets == []


async def test_the_form_of_one_visit_is_refused_in_another(browser: httpx.AsyncClient, gateway: Serving):
    local = await form(browser)
    await gateway.add_key("admin", "admin")
    await browser.post("/ui/sign-in", data={"form": await _form_of_401(browser), "key": "aw-admin"})
    assert (await browser.post("/ui/learning/pause", data={"form": local})).status_code == 403
    assert (await browser.post("/ui/learning/pause", data={"form": await form(browser)})).status_code == 303


async def test_a_rollback_of_the_page_is_the_rollback_of_the_command(tmp_path: Path):
    base = tmp_path / "base"
    base.mkdir()
    versions = Versions(root=tmp_path / "versions", base=base)
    probe = Probe(ids=(1, 2), logprobs=(-1.0,))
    with versions.writing():
        first = Version(number=0, parent=None, origin=Origin.BASE, created=0.0, probe=probe)
        versions.write(first, lambda folder: None)
        update = Version(number=1, parent=0, origin=Origin.UPDATE, created=1.0, turns=("t1",), probe=probe)
        versions.write(update, lambda folder: (folder / "model.safetensors").write_text("w") and None)
    store = AsyncStore(store_in_memory())
    await store.call(lambda opened: [opened.commit_version(each, now=2.0) for each in versions.all()])
    made = await roll_back(store, versions, 0, now=3.0)
    assert (made.number, made.restores, made.reverts) == (2, 0, (1,))
    assert await store.call(lambda opened: [each.number for each in opened.versions()]) == [0, 1, 2]
    with pytest.raises(SettingError):
        await roll_back(store, versions, 7, now=3.0)
    await store.close()
