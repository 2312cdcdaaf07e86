"""`pause`, `resume`, `status`, `review`, `exclude`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.checkpoints.manifest import exclusive
from afterwit.cli.app import app
from afterwit.errors import SettingError, TurnNotFound
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason, State
from afterwit.printing.status import lines, overview
from afterwit.store import Status
from afterwit.verdict import Flag
from afterwit.version import Origin
from tests.store.examples import HINTED, NO, a_version, add, add_judged

run = CliRunner()


@pytest.fixture
def say(home: Path) -> Callable[..., str]:
    return lambda *words: run.invoke(app, [*words, "--home", str(home)], catch_exceptions=False).stdout


def test_a_pause_is_said_with_its_reason_until_it_ends(say: Callable[..., str]) -> None:
    assert "paused" not in say("status")
    assert "no update begins until `afterwit resume`" in say("pause", "Bob says odd things")
    assert "paused just now (Bob says odd things): `afterwit resume` continues" in say("status")
    assert say("resume") == "learning goes on\n"
    assert say("resume") == "learning was not paused\n"


def test_a_pause_tells_of_an_update_that_had_begun(home: Path, say: Callable[..., str]) -> None:
    with store_of_home(home) as store:
        store.claim("learn", owner="learner", limit=1, lease_s=600.0, now=time.time())
    assert "an update of 1 turn had begun and is finished" in say("pause")
    assert "1 turn of an update that had begun" in say("status")


def test_the_status_says_what_the_next_update_waits_for(home: Path, say: Callable[..., str]) -> None:
    now = time.time()
    with store_of_home(home) as store:
        for turn in ("e", "f"):
            add_judged(store, turn, now=now - 1080)
        store.skip(["cjudged"], "reverted", now=now)
    assert "2 of 4 turns wait: the next update starts at 4, or in 12 minutes" in say("status")
    page = json.loads(say("status", "--json"))
    assert page["next"]["ready"] == 2
    assert (page["version"], page["serving"], page["turns"]["OPEN"]) == (1, False, 1)


def test_who_runs_over_the_home_is_found_by_its_locks(home: Path, say: Callable[..., str]) -> None:
    assert "no learner runs over this home" in say("status")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from afterwit.checkpoints.manifest import exclusive\n"
            f"with exclusive(Path({str(home)!r}) / '.gateway.lock', purpose='x', wait=False):\n"
            "    print('held', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with exclusive(home / "versions" / ".learner.lock", purpose="x", wait=False):
        page = json.loads(say("status", "--json"))
    holder.communicate()
    assert (page["serving"], page["learning"]) == (True, True)


def test_each_state_of_learning_has_its_sentence(home: Path) -> None:
    def seen(**changes: Any) -> dict[str, str]:
        return dict(lines(replace(found, **changes)))

    with store_of_home(home) as store:
        store.set_status("judge", False, "it does not answer", now=0.0)
        found = overview(store, LearnerSettings(), serving=True, learning=True, now=90.0)
        store.commit_version(a_version(2, origin=Origin.ROLLBACK, restores=1, reverts=()), now=4.0)
        later = overview(store, LearnerSettings(), serving=True, learning=True, now=10_000.0)
        store.commit_version(a_version(3, origin=Origin.REPLAY, replays=()), now=5.0)
        replayed = overview(store, LearnerSettings(), serving=True, learning=True, now=10_000.0)
    assert seen()["learning"] == "on; no update is under way"
    assert seen()["serving"] == "version 1"
    assert seen()["last update"] == "version 1, 2 minutes ago, from 1 turn"
    assert found.newest is not None
    long = replace(found.newest, created=-10_000.0)  # when its training began
    assert seen(newest=long)["last update"] == seen()["last update"]
    past = replace(found.newest, metrics={"past_teacher": 2.0})
    assert "the hints of 2 disliked answers had nothing left to teach" in seen(newest=past)["last update"]
    assert seen(newest=replace(past, metrics={"past_teacher": 0.0})) == seen()
    assert seen()["judge !"] == "it does not answer (for 2 minutes)"
    assert next(iter(seen())) == "judge !"
    assert seen(serving=False, learning=False)["judge !"] == "it does not answer (2 minutes ago)"
    assert seen(in_update=3)["learning"] == "an update of 3 turns is under way"
    assert seen(learning=False, enabled=False)["learning"] == "off (learner.enabled = false)"
    ended = seen(in_update=3, serving=False, learning=False)["learning"]
    assert "no learner runs over this home" in ended
    assert ended.endswith("an update of 3 turns was interrupted, and its turns wait")
    alone = seen(serving=False)  # a learner that outlives the gateway
    assert alone["judge !"] == "it does not answer (2 minutes ago)"
    there = Status(stage="learn", machine="two", ok=True, message="trains on 3 turns", at=0.0)
    shared = seen(in_update=3, learning=False, stages=(there,))["learning"]
    assert shared == "an update of 3 turns is under way"
    off = Status(stage="learn", ok=True, message="switched off", at=0.0)
    assert "the line `learn` has the reason" in seen(learning=False, stages=(off,))["learning"]
    assert seen(newest=None)["last update"] == "none yet"
    assert dict(lines(later))["last update"] == "version 2, 3 hours ago: went back to version 1"
    assert dict(lines(later))["serving"] == "version 1; version 2 is not served yet"
    without = "earlier updates, run again without what was forgotten"
    assert dict(lines(replayed))["last update"] == f"version 3, 3 hours ago: {without}"


@pytest.fixture
def flagged(home: Path) -> str:
    """A turn with a doubtful hint."""
    with store_of_home(home) as store:
        add(store, "edoubtful", session="bob")
        store.answer("edoubtful", NO, answered_by=None, now=0.0)
        store.claim("judge", owner="judge", limit=9, lease_s=60.0, now=0.0)
        flags = (Flag.LINK, Flag.STANDING_ORDER)
        store.judged("edoubtful", HINTED, rl=True, opd=True, reason=None, owner="judge", now=0.0, flags=flags)
    return "edoubtful"


def test_a_doubtful_turn_is_listed_with_its_hint_and_why(say: Callable[..., str], flagged: str) -> None:
    text = say("review")
    assert "edoubtful  reward -1  from key/agent" in text
    assert "Open the file that was named." in text
    assert "the hint names an address that no person named" in text
    assert "1 turn waits for your review (learner.review = flagged)" in text
    (line,) = say("review", "--json").splitlines()
    assert json.loads(line)["flags"] == ["link", "standing_order"]
    assert "1 turn for your review" in say("status")


def test_turns_are_accepted_and_refused_by_the_beginning_of_their_id(
    home: Path, say: Callable[..., str], flagged: str
) -> None:
    assert "refused: it does not train" in say("review", "edoub", "--refuse")
    assert "0 turns wait" in say("review")
    assert "no turn waits for your review" in say("review", "all", "--refuse")
    assert "accepted: it may train" in say("review", "edoub", "--accept")
    with store_of_home(home) as store:
        assert store.turn("edoubtful").state is State.JUDGED


def test_all_that_wait_are_accepted_at_once_and_what_trained_meanwhile_is_said(
    say: Callable[..., str], flagged: str
) -> None:
    assert say("review", "all", "--accept").splitlines() == ["edoubtful  accepted: it may train"]
    assert "it has trained already: nothing changed" in say("review", "dtrained", "--refuse")
    assert "no verdict that could train" in say("review", "aopen", "--refuse")


@pytest.mark.parametrize("words", [("review", "cjudged"), ("review", "--accept")])
def test_a_review_names_turns_and_a_decision(home: Path, words: tuple[str, ...]) -> None:
    result = run.invoke(app, [*words, "--home", str(home)])
    assert isinstance(result.exception, SettingError)


def test_a_session_is_excluded_by_its_id_or_by_a_turn(
    home: Path, say: Callable[..., str], flagged: str
) -> None:
    assert "session bob teaches nothing: 1 turn ended" in say("exclude", "edoub")
    text = say("exclude", "session")
    assert "2 turns ended" in text
    assert "version 1 trained on it before: `afterwit rollback 0` takes it back" in text
    with store_of_home(home) as store:
        assert store.turn("cjudged").reason is Reason.EXCLUDED
    assert "may teach again" in say("exclude", "session", "--undo")
    assert "was not excluded" in say("exclude", "session", "--undo")
    assert "session" in say("exclude", "last")


def test_the_way_back_from_an_excluded_session_is_that_of_its_adapter(
    home: Path, say: Callable[..., str]
) -> None:
    with store_of_home(home) as store:
        for number, turn in ((2, "own"), (3, "mine"), (4, "late")):
            add_judged(store, turn, session="session")
            adapter = "key:ana" if turn == "mine" else "shared"
            parent = {2: 1, 3: 0, 4: 2}[number]
            version = a_version(number, [turn], adapter=adapter, parent=parent)
            store.commit_version(version, now=float(number))
    text = say("exclude", "session")
    assert "versions 1, 2, 4 trained on it before: `afterwit rollback 0` takes it back" in text
    assert "version 3 of key:ana trained on it before: `afterwit rollback 0 --adapter key:ana` takes" in text


def test_whether_the_judge_can_be_trusted_is_told_in_words_and_to_programs(
    home: Path, say: Callable[..., str]
) -> None:
    words = say("judges")
    assert "2 judged, the newest" in words
    assert "!" not in words
    with store_of_home(home) as store:
        store.set_note("judge_ability", json.dumps({"fault": "This model cannot judge."}))
    assert "! This model cannot judge." in say("judges")
    told = json.loads(say("judges", "--json"))
    assert told["invalid"] == {"count": 1, "of": 3}
    assert len(told["warnings"]) == 1


def test_a_turn_that_is_not_there_is_not_put_back_in_silence(home: Path, say: Callable[..., str]) -> None:
    with store_of_home(home) as store:
        store.skip(["cjudged"], "learner_failed", now=time.time())
    with pytest.raises(TurnNotFound, match="there is no turn zz"):
        say("requeue", "zz")
    assert say("requeue", "cjud") == "1 turn put back\n"


def test_a_home_without_keys_says_who_may_call(say: Callable[..., str]) -> None:
    assert say("keys", "list").startswith("there is no key: this machine may call without one")
    say("keys", "add", "laptop")
    assert "laptop" in say("keys", "list")
