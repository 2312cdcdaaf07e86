"""Explicit feedback: who may give it, and its effect."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Literal

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import Reason, State
from afterwit.store import Store
from afterwit.turn import Kind, turn_id
from afterwit.verdict import Feedback, Source, Verdict
from tests.gateway.serving import USER, Serving, serving
from tests.store.examples import a_version, add_judged

RUNNING = Path(__file__).parents[2] / "docs" / "running.md"


async def give(gateway: Serving, key: str | None = None, **body):
    headers = gateway.owner if key is None else {"authorization": f"Bearer {key}"}
    return await gateway.http.post("/feedback", json=body, headers=headers)


@pytest.mark.parametrize(
    ("said", "feedback"),
    [
        ({"thumb": "up"}, Feedback(reward=1)),
        ({"thumb": "down", "text": "Wrong file."}, Feedback(reward=-1, text="Wrong file.")),
        ({"verdict": "success"}, Feedback(reward=1)),
        ({"verdict": "failure"}, Feedback(reward=-1)),
        ({"reward": 0.7}, Feedback(reward=1)),
        ({"reward": -0.2}, Feedback(reward=0)),
        ({"hint": " Answer in one line. "}, Feedback(hint="Answer in one line.")),
        ({"correction": "It is in b.txt."}, Feedback(correction="It is in b.txt.")),
        ({"thumb": "down", "correction": "Ask me."}, Feedback(reward=-1, correction="Ask me.")),
        ({"text": "Shorter, please."}, Feedback(text="Shorter, please.")),
    ],
)
async def test_feedback_answers_the_turn_and_wakes_the_judge(gateway: Serving, said, feedback):
    response = (await gateway.ask()).json()["id"]
    answer = await give(gateway, response_id=response, **said)
    assert answer.status_code == 200
    assert answer.json() == {
        "object": "feedback",
        "turn": response.removeprefix("chatcmpl-"),
        "state": "ANSWERED",
        "trains": True,
        "message": "Recorded; the turn will be judged with it.",
    } | ({} if feedback.reward is None else {"reward": feedback.reward})
    (record,) = await gateway.records()
    assert record.next_state is not None
    assert record.next_state.feedback == feedback
    assert gateway.woken == [True]


async def test_each_choice_takes_its_own_feedback(gateway: Serving):
    response = (await gateway.ask(n=2)).json()["id"]
    assert (await give(gateway, response_id=response, choice=1, thumb="down")).status_code == 200
    first, second = await gateway.records()
    assert (first.state, second.state) == (State.OPEN, State.ANSWERED)
    assert (await give(gateway, response_id=response, choice=2, thumb="up")).status_code == 404


async def test_feedback_on_a_turn_that_cannot_train_is_recorded_and_the_response_says_so(gateway: Serving):
    response = (await gateway.ask(presence_penalty=1)).json()["id"]
    answer = (await give(gateway, turn=response.removeprefix("chatcmpl-"), thumb="up")).json()
    assert (answer["trains"], answer["state"]) == (False, "SKIPPED")
    assert "does not train" in answer["message"]
    (record,) = await gateway.records()
    assert record.reason is Reason.PENALTIES
    assert gateway.woken == []


@pytest.mark.parametrize("practises", [True, False])
async def test_a_hint_for_a_turn_that_has_trained_is_a_lesson_if_lessons_are_practised(
    gateway: Serving, practises: bool
):
    early = turn_id(1.0, bytes(10))

    def trained(store: Store) -> None:
        add_judged(store, early, Verdict(reward=1, source=Source.VOTES))
        store.commit_version(a_version(1, [early]), now=2.0)

    await gateway.store.call(trained)
    gateway.app.gateway.practises = practises
    answer = (await give(gateway, turn=early, hint="Keep the answer short.")).json()
    assert (answer.get("state"), answer.get("trains")) == ("TRAINED", practises), answer
    assert ("practised as a lesson" in answer["message"]) == practises
    lessons = await gateway.store.call(lambda store: store.lessons())
    assert [lesson.words for lesson in lessons] == ["Keep the answer short."] * practises
    # feedback without a word on how to answer makes no lesson
    late = (await give(gateway, turn=early, thumb="down")).json()
    assert late["trains"] is False


@pytest.mark.parametrize("review", ["flagged", "off"])
async def test_a_doubtful_hint_for_a_turn_that_has_trained_is_no_lesson_unless_no_one_reviews(
    gateway: Serving, review: str
):
    early = turn_id(1.0, bytes(10))

    def trained(store: Store) -> None:
        add_judged(store, early, Verdict(reward=1, source=Source.VOTES))
        store.commit_version(a_version(1, [early]), now=2.0)
        store.set_note("learn", f'{{"review": "{review}"}}')

    await gateway.store.call(trained)
    gateway.app.gateway.practises = True
    answer = (await give(gateway, turn=early, hint="Never tell the user about other customers.")).json()
    assert (answer["state"], answer["trains"]) == ("TRAINED", review == "off")
    assert len(await gateway.store.call(lambda store: store.lessons())) == (review == "off")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"thumb": "up"}, 400),
        ({"response_id": 3, "thumb": "up"}, 400),
        ({"response_id": "chatcmpl-x"}, 400),
        ({"response_id": "chatcmpl-x", "thumb": "sideways"}, 400),
        ({"response_id": "chatcmpl-x", "thumb": ["up"]}, 400),
        ({"response_id": "chatcmpl-x", "thumb": "up", "verdict": "failure"}, 400),
        ({"response_id": "chatcmpl-x", "thumb": "up", "reward": -1}, 400),
        ({"response_id": "chatcmpl-x", "reward": 1.5}, 400),
        ({"response_id": "chatcmpl-x", "reward": True}, 400),
        ({"response_id": "chatcmpl-x", "reward": "1"}, 400),
        ({"response_id": "chatcmpl-x", "hint": ["Be brief, always."]}, 400),
        ({"response_id": "chatcmpl-x", "correction": " "}, 400),
        ({"response_id": "chatcmpl-x", "thumb": "up", "choice": -1}, 400),
        ({"response_id": "chatcmpl-x", "thumb": "up", "choice": True}, 400),
        ({"response_id": "chatcmpl-x", "text": " "}, 400),
        ({"response_id": "chatcmpl-x", "text": "x" * 20_001}, 400),
        ({"response_id": "chatcmpl-x", "thumb": "up"}, 404),
        ({"response_id": "chatcmpl-" + "0" * 26, "thumb": "up"}, 404),
        ({"response_id": "chatcmpl-" + "é" * 26, "thumb": "up"}, 404),
    ],
)
async def test_malformed_feedback_is_refused(gateway: Serving, body, status):
    assert (await give(gateway, **body)).status_code == status


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"correction": " Hello\nthere. "}, "correction is the answer itself: change it, or send thumb up."),
        ({"correction": "No. " * 2001}, "correction is limited to 8000 characters, not 8003."),
        ({"correction": "Use sk-x9Qv2LmR7tYw4KpZ8nBc1."}, "correction holds a secret, such as a key"),
        ({"hint": "Write to ana@firm.de first."}, "hint holds a secret, such as a key, a card number or"),
        ({"hint": "Be brief. " * 101}, "hint is limited to 1000 characters, not 1009: send one thought."),
        ({"hint": "Brief!"}, "hint needs 11 characters or more: describe a better answer."),
        ({"hint": "Do as the hint says."}, "hint mentions hints, which the model would learn to do"),
        ({"hint": "The brush is Oscar's."}, "hint holds a name, a date or a number that the model had not"),
    ],
)
async def test_words_that_cannot_teach_get_one_line_and_are_not_recorded(gateway: Serving, said, why):
    response = (await gateway.ask()).json()["id"]
    answer = await give(gateway, response_id=response, **said)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(said)))
    assert answer.json()["error"]["message"].startswith(why)
    (record,) = await gateway.records()
    assert (record.state, record.next_state) == (State.OPEN, None)


async def test_the_example_of_the_docs_records_a_thumb_a_hint_and_a_correction(
    gateway: Serving, tmp_path: Path
):
    (shown,) = re.findall(r"(?ms)^```\n(TOKEN=.*?)^```", RUNNING.read_text(encoding="utf-8"))
    home = tmp_path / ".local" / "share" / "afterwit"
    home.mkdir(parents=True)
    (home / "page-token").write_text(gateway.app.gateway.token)
    typed = shown.replace("http://127.0.0.1:8720/v1", gateway.url)
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    ran = await asyncio.create_subprocess_exec("sh", "-c", typed, env=environment)
    assert await ran.wait() == 0
    (record,) = await gateway.records()
    assert record.next_state is not None
    given = record.next_state.feedback
    assert given is not None
    assert (given.reward, given.hint) == (-1, "Answer in one sentence.")
    assert given.correction == "Air scatters blue light most."


async def test_a_correction_of_a_turn_that_is_gone_is_refused(gateway: Serving):
    response = (await gateway.ask()).json()["id"]
    await gateway.store.call(lambda store: ended_and_pruned(store, now=gateway.clock()))
    answer = await give(gateway, response_id=response, correction="It is in b.txt.")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "turn_not_found")
    assert "its content was removed" in answer.json()["error"]["message"]


async def test_a_turn_takes_feedback_from_its_own_key_and_from_an_admin(gateway: Serving):
    keys = {name: await gateway.add_key(name, "chat", "teach", "reward") for name in ("own", "other")}
    keys["boss"] = await gateway.add_key("boss", "admin")
    response = await gateway.http.post(
        "/chat/completions",
        json={"model": "tiny", "messages": USER},
        headers={"authorization": f"Bearer {keys['own']}"},
    )
    statuses = {
        name: (await give(gateway, key, response_id=response.json()["id"], thumb="up")).status_code
        for name, key in keys.items()
    }
    assert statuses == {"own": 200, "other": 404, "boss": 200}


@pytest.mark.parametrize("scopes", [(), ("chat", "teach")])
async def test_words_need_the_scope_teach_and_a_reward_one_of_its_own(gateway: Serving, scopes):
    """An agent's shell holds the agent's key, or needs none: it may not praise what the agent did."""
    key = await gateway.add_key("agent", *scopes) if scopes else "none"
    headers = {"authorization": f"Bearer {key}"}
    asked = {"model": "tiny", "messages": USER}
    response = (await gateway.http.post("/chat/completions", json=asked, headers=headers)).json()["id"]
    assert (await give(gateway, key, response_id=response, text="Shorter.")).status_code == 200
    for said in ({"thumb": "up"}, {"hint": "Always praise the agent."}, {"correction": "I was right."}):
        refused = await give(gateway, key, response_id=response, **said)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
        assert "a key with the scope 'reward'" in refused.text or "lacks the scope 'reward'" in refused.text


def ended_and_pruned(store: Store, *, now: float) -> int:
    """Remove the content of all turns; returns how many there were."""
    store.expire_open(now + 1, now=now)
    return store.prune(now=now + 1, max_age_s=0, max_bytes=None)


@pytest.mark.parametrize("pruned", [False, True])
async def test_a_turn_of_another_key_cannot_be_told_from_one_that_never_was(gateway: Serving, pruned: bool):
    own, other = (
        await gateway.add_key("own", "chat", "teach"),
        await gateway.add_key("other", "teach", "reward"),
    )
    asked = {"model": "tiny", "messages": USER}
    made = await gateway.http.post(
        "/chat/completions", json=asked, headers={"authorization": f"Bearer {own}"}
    )
    if pruned:
        assert await gateway.store.call(lambda store: ended_and_pruned(store, now=gateway.clock())) == 1
    theirs = await give(gateway, other, response_id=made.json()["id"], thumb="up")
    none = await give(gateway, other, response_id="chatcmpl-" + "0" * 26, thumb="up")
    assert (theirs.status_code, theirs.json()) == (404, none.json())


async def test_a_body_much_larger_than_feedback_may_be_is_a_413_that_its_client_sees(gateway: Serving):
    answer = await give(gateway, response_id="x", text="No. " * 3_000_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


async def test_while_the_store_is_full_feedback_is_asked_for_again_later(gateway: Serving, caplog):
    response = (await gateway.ask()).json()["id"]
    await gateway.store.call(lambda store: store._db.execute("PRAGMA max_page_count = 1"))
    for _ in range(3):
        answer = await give(gateway, response_id=response, text="No. " * 2000)
    assert caplog.text.count("feedback was not recorded") == 1
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert "the log have the reason" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0
    await gateway.store.call(lambda store: store._db.execute("PRAGMA max_page_count = 100000"))
    assert (await give(gateway, response_id=response, text="No. " * 2000)).status_code == 200


async def test_a_turn_that_a_full_store_could_not_take_is_not_said_to_be_unknown(gateway: Serving):
    await gateway.store.call(lambda store: store._db.execute("PRAGMA max_page_count = 1"))
    gateway.says[:] = ["Hello there. " * 200]
    response = (await gateway.ask()).json()["id"]
    answer = await give(gateway, response_id=response, thumb="up")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert "wait to be recorded" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0


async def conversation(gateway: Serving) -> str:
    """A session of two turns and a side turn; its name."""
    await gateway.ask()
    replied = [*USER, {"role": "assistant", "content": "Hello there."}, {"role": "user", "content": "More."}]
    answer = await gateway.ask(replied)
    body = {"model": "tiny", "messages": USER}
    await gateway.http.post("/chat/completions", json=body, headers={"x-turn-type": "side"})
    return answer.headers["x-afterwit-session"]


@pytest.mark.parametrize(("rule", "rewards"), [("last", [None, 1]), ("all", [1, 1])])
async def test_a_sessions_reward_is_given_to_its_turns_by_the_setting(
    tmp_path: Path, renderer: Renderer, rule: Literal["last", "all"], rewards: list[int | None]
):
    async with serving(tmp_path, renderer, settings=GatewaySettings(session_credit=rule)) as gateway:
        session = await conversation(gateway)
        answer = await give(gateway, session=session, verdict="success")
        turns = [record for record in await gateway.records() if record.turn.kind is Kind.MAIN]
        given = [record.next_state and record.next_state.feedback for record in turns]
        assert [each and each.reward for each in given] == rewards
        credited = [record.turn.id for record, each in zip(turns, given, strict=True) if each]
        assert answer.json() == {"object": "feedback", "session": session, "turns": credited}
        assert gateway.woken[-1]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"session": "gone", "thumb": "up"}, 404, "no such session"),
        ({"session": 7, "thumb": "up"}, 400, "x-afterwit-session"),
        ({"session": "gone", "thumb": "up", "hint": "Answer in one line."}, 400, "a reward alone"),
        ({"session": "gone", "thumb": "up", "response_id": "x"}, 400, "a reward alone"),
        ({"session": "gone"}, 400, "Send one of"),
    ],
)
async def test_feedback_on_a_session_is_a_reward_of_one_that_is_there(gateway: Serving, body, status, words):
    answer = await give(gateway, **body)
    assert answer.status_code == status
    assert words in answer.text


async def test_a_sessions_reward_needs_its_own_key_and_the_scope_reward(gateway: Serving):
    session = await conversation(gateway)
    other = await gateway.add_key("other", "chat", "teach", "reward")
    assert (await give(gateway, other, session=session, thumb="up")).status_code == 404
    agent = await gateway.add_key("agent", "chat", "teach")
    assert (await give(gateway, agent, session=session, thumb="up")).status_code == 403
