"""`afterwit ledger`, `afterwit progress`, and the fate of a turn in `afterwit show`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.cli.app import app
from afterwit.printing.ledger import version_table
from afterwit.printing.progress import BAR
from afterwit.printing.terminal import moment
from afterwit.progress import progress
from afterwit.promotion.episodes import BadEnd, Episode
from afterwit.promotion.watch import requests_asked
from afterwit.store import Store
from afterwit.version import Effect, Origin, SuiteResult
from tests.store.examples import HINTED, NO, a_version, add_judged

run = CliRunner()
EFFECT = Effect(turn="eeffect", before=-2.0, after=-2.5, hinted_before=-4.0)


@pytest.fixture
def taught(home: Path) -> Path:
    """Version 2 learned from `eeffect`, and again from `dtrained`."""
    with store_of_home(home) as store:
        add_judged(store, "eeffect", session="talk")
        store.commit_version(
            replace(a_version(2, ["eeffect"]), replayed=("dtrained",), effects=(EFFECT,)), now=4.0
        )
        store.published(2, now=5.0)
    return home


def text(*arguments: str, home: Path) -> str:
    found = run.invoke(app, [*arguments, "--home", str(home)], env={"COLUMNS": "120"})
    assert found.exit_code == 0, found.output
    return found.stdout


def lines(*arguments: str, home: Path) -> list[dict]:  # type: ignore[type-arg]  # JSON
    return [json.loads(line) for line in text(*arguments, "--json", home=home).splitlines()]


def test_a_version_names_its_turns_their_votes_hints_and_its_effect(taught: Path) -> None:
    found = text("ledger", home=taught)
    assert "eeffect  TRAINED" in found
    assert "then: user: No, the other file." in found
    assert "reward -1 by votes · evaluation votes -1 · hint votes +1, invalid" in found
    assert "hint: Open the file that was named." in found
    assert "learned in version 2, in what is served" in found
    assert "log-prob a token -2.000 -> -2.500; of the teacher with the hint -4.000\n" in found
    assert "learned again in version 2" in found


def test_a_version_names_the_lessons_that_it_learned_from(taught: Path) -> None:
    with store_of_home(taught) as store:
        number = store.teach(store.turn("eeffect").sampled_turn, "Open what was named.", now=3.0)
    assert f"lesson {number}: Open what was named. (1 turn)" in text("ledger", home=taught)


def test_the_ledger_for_programs_has_the_same(taught: Path) -> None:
    new, again = lines("ledger", "2", home=taught)
    assert (new["turn"], new["verdict"]["reward"], new["verdict"]["hints"]) == (
        "eeffect",
        -1,
        ["Open the file that was named."],
    )
    assert new["learned"] == [
        {
            "version": 2,
            "replayed": False,
            "fate": "in what is served",
            "effect": {
                "turn": "eeffect",
                "before": -2.0,
                "after": -2.5,
                "hinted_before": -4.0,
                "advantages": [],
            },
        }
    ]
    assert [each["replayed"] for each in again["learned"]] == [True]
    assert new["answers"] is None


def test_a_conversation_is_followed_to_what_became_of_it(taught: Path) -> None:
    with store_of_home(taught) as store:
        store.commit_version(replace(a_version(3), origin=Origin.ROLLBACK, restores=1, reverts=(2,)), now=6.0)
    (turn,) = lines("ledger", "--session", "talk", home=taught)
    for named in ("last", "eeff"):  # the newest turn's, and that of a turn whose id begins so
        assert lines("ledger", "--session", named, home=taught) == [turn]
    assert (turn["turn"], turn["state"], turn["reason"]) == ("eeffect", "SKIPPED", "reverted")
    assert [each["fate"] for each in turn["learned"]] == ["taken back by version 3"]
    assert "learned in version 2, taken back by version 3" in text(
        "show", "eeffect", "--no-advantages", home=taught
    )


def test_a_reward_of_zero_has_no_sign_on_any_screen(taught: Path) -> None:
    with store_of_home(taught) as store:
        add_judged(store, "fnone", replace(HINTED, reward=0))
    for screen in (["show", "fnone", "--no-advantages"], ["ledger", "--session", "fnone"]):
        found = text(*screen, home=taught)
        assert "reward 0 by votes" in found
        assert "+0" not in found


def test_a_turn_whose_content_is_gone_still_stands_there(taught: Path) -> None:
    with store_of_home(taught) as store:
        store.prune(now=1e12, max_age_s=1.0, max_bytes=None)
    assert "eeffect  its content is gone" in text("ledger", home=taught)
    assert lines("ledger", home=taught)[0]["response"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["9"], "there is no version 9; there are: 0, 1, 2"),
        (["--session", "none"], "there is no session none, and no turn"),
        (["2", "--session", "talk"], "give it alone"),
    ],
)
def test_what_is_not_there_is_said(taught: Path, arguments: list[str], words: str) -> None:
    found = run.invoke(app, ["ledger", *arguments, "--home", str(taught)])
    assert words in str(found.exception)


def test_without_an_update_there_is_no_ledger(tmp_path: Path) -> None:
    with store_of_home(tmp_path, make=True):
        pass
    found = run.invoke(app, ["ledger", "--home", str(tmp_path)])
    assert "nothing has been learned" in str(found.exception)


def ended(store: Store, number: int, *, complaint: bool, bad: BadEnd | None = None) -> None:
    end = Episode(
        turn=f"t{number}",
        session=f"s{number}",
        source="laptop" if number % 2 else "phone",
        version=1,
        bad=bad,
        complaint=complaint,
        kind="text" if number % 3 else "write",
        approved=(),
    )
    store.end_episode(end, [], steps=[end.turn], now=float(number))


@pytest.fixture
def used(home: Path) -> Path:
    """Sixty sessions; the first thirty complain."""
    with store_of_home(home) as store:
        for number in range(60):
            ended(store, number, complaint=number < 30)
        ended(store, 60, complaint=False, bad=BadEnd.NO_END)
    return home


def test_progress_answers_in_words_with_intervals_and_parts(used: Path) -> None:
    found = text("progress", home=used)
    assert (
        "You correct it less than at first: 100% of the first 15 sessions had a complaint, 50% of the last 30"
        in found
    )
    assert "phone, early" in found
    assert "write, late" in found


def test_status_and_progress_answer_in_the_same_words(used: Path) -> None:
    with store_of_home(used) as store:
        found = progress(requests_asked(store))
    answer, why = "You correct it less than at first", found.why
    assert found.answer == answer
    assert f"{answer}: {why}." in " ".join(text("progress", home=used).split())
    assert f"corrections   {answer}: {why}" in text("status", home=used)


def test_progress_fits_a_terminal_of_80_columns_with_whole_bars(used: Path) -> None:
    found = run.invoke(app, ["progress", "--home", str(used)], env={"COLUMNS": "80"}).stdout
    assert "…" not in found
    assert "█" * BAR in found
    assert len([line for line in found.splitlines() if "phone" in line]) == 2


def test_progress_for_programs(used: Path) -> None:
    (found,) = lines("progress", home=used)
    whole = found["all"]["all"]
    assert whole["trend"] == "less"
    assert [period["complaining"] for period in whole["periods"]] == [10, 10, 10, 0, 0, 0]
    assert {name: list(found[name]) for name in ("source", "kind")} == {
        "source": ["laptop", "phone"],
        "kind": ["text", "write"],
    }


def test_progress_is_drawn_on_request(used: Path, tmp_path: Path) -> None:
    text("progress", "--png", str(tmp_path / "progress.png"), home=used)
    assert (tmp_path / "progress.png").read_bytes()[1:4] == b"PNG"


def test_without_ended_conversations_there_is_nothing_to_count(home: Path) -> None:
    assert "a person's reply was judged in 0 of the 20 sessions" in text("progress", home=home)
    with store_of_home(home) as store:
        ended(store, 1, complaint=True)
    assert "a person's reply was judged in 1 of the 20 sessions" in text("progress", home=home)


@pytest.mark.parametrize("columns", [80, 120])
def test_numbers_and_times_of_versions_are_never_cut(taught: Path, columns: int) -> None:
    result = run.invoke(app, ["versions", "--home", str(taught)], env={"COLUMNS": str(columns)})
    head, *rows = result.stdout.splitlines()
    assert ("served since" in head) is (columns >= 100)
    assert all(name in head for name in ("version", "how", "made", "learned from", "to the teacher"))
    assert rows
    assert not any("\u2026" in row for row in rows)


def test_an_update_that_went_no_part_of_the_way_shows_no_sign(taught: Path) -> None:
    with store_of_home(taught) as store:
        newest = replace(store.versions()[-1], metrics={"way_to_teacher": -0.001})
    shares = version_table([newest], [], width=80).columns[4]
    assert list(shares.cells) == ["0%"]


def test_a_version_was_made_when_it_was_committed_not_when_its_training_began(taught: Path) -> None:
    with store_of_home(taught) as store:
        newest = replace(store.versions()[-1], created=0.0, committed_at=86_400.0)
    assert list(version_table([newest], [], width=80).columns[2].cells) == [moment(86_400.0, year=False)]


def test_a_replay_names_its_source_and_what_it_lost_of_what_people_approved(taught: Path) -> None:
    lost = SuiteResult(lost={"text": (1, 6), "edit": (0, 2)}, evidence=0.0)
    with store_of_home(taught) as store:
        newest = replace(store.versions()[-1], origin=Origin.REPLAY, trained=0, replayed=0, suite=lost)
    table = version_table([newest], [], width=80)
    assert list(table.columns[3].cells) == ["earlier updates"]
    assert [str(cell) for cell in table.columns[5].cells] == ["lost 1 of 6 approved `text`"]


def test_the_newest_versions_are_listed_and_the_others_counted(taught: Path) -> None:
    assert [row["number"] for row in lines("versions", "--limit", "2", home=taught)] == [1, 2]
    assert [row["number"] for row in lines("versions", "--limit", "0", home=taught)] == [0, 1, 2]
    found = text("versions", "--limit", "1", home=taught)
    assert found.splitlines()[1].startswith("2 *")
    assert "1 of 3 versions are listed; --limit 0 lists all" in found
    assert "are listed" not in text("versions", home=taught)


def test_the_lessons_given_last_are_listed_each_indented_below_its_number(taught: Path) -> None:
    with store_of_home(taught) as store:
        store.teach(store.turn("cjudged").sampled_turn, "Open what was named.", now=3.0)
        words = "Here is an example:\n\nA file.\n\nNow answer."
        store.teach(store.turn("eeffect").sampled_turn, words, now=4.0)
    found = text("lessons", "--limit", "1", home=taught)
    assert "\n  2  Here is an example:\n     A file.\n     Now answer.\n     first given" in found
    assert "1 of 2 lessons are listed; --limit 0 lists all" in found
    assert [row["number"] for row in lines("lessons", home=taught)] == [2, 1]


def test_a_home_without_lessons_says_whether_turns_wait_for_the_judge(home: Path) -> None:
    assert "No lesson yet: correct an answer in words" in text("lessons", home=home)
    with store_of_home(home) as store:
        store.answer("aopen", NO, answered_by=None, now=4.0)
    assert "No lesson yet: the judge has not read 1 turn so far." in text("lessons", home=home)
