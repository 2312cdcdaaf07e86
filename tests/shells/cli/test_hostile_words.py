"""Foreign text is shown in a terminal, and its control characters are obeyed nowhere."""

from __future__ import annotations

import json
import logging
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.text import Text
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.cli.app import app, main
from afterwit.printing.terminal import Terminal, plain
from afterwit.promotion.episodes import Event, EventKind
from afterwit.running.logs import PlainFormatter
from afterwit.running.serve import greet
from afterwit.turn import Conversation, Message, ToolCall
from afterwit.verdict import Question, Source, Verdict, Vote
from tests.store.examples import a_version, add, add_judged

HOSTILE = "\x1b]0;mine\x07\x1b[2J\x9b31m\r\x08\x7f\u202egnp\u2066[/red][bold]:smile:"
SEEN = "]0;mine[2J31mgnp[/red][bold]:smile:"
OBEYED = ("\x1b", "\x07", "\x9b", "\r", "\x08", "\x7f", "\u202e", "\u2066")
COMMANDS = (
    ["turns"],
    ["turns", "--kind", "all"],
    ["turns", "--json"],
    ["show", "bad", "--no-advantages"],
    ["show", "last", "--no-advantages"],
    ["ledger", "1"],
    ["ledger", "--session", HOSTILE],
    ["progress"],
    ["judges"],
    ["versions"],
    ["status"],
    ["review"],
    ["keys", "list"],
    ["du"],
)
run = CliRunner()


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A home in which every word of others is hostile."""
    said = Message(role="user", content=HOSTILE)
    call = ToolCall(id=HOSTILE, name=HOSTILE, arguments=HOSTILE)
    called = Message(role="assistant", content=HOSTILE, tool_calls=(call,))
    vote = Vote(question=Question.HINT, words=HOSTILE, value=None, rejected=HOSTILE)
    verdict = Verdict(reward=-1, source=Source.VOTES, hints=(HOSTILE,), votes=(vote,))
    whose = {
        "session": HOSTILE,
        "scope": f"{HOSTILE}/x",
        "conversation": Conversation(messages=(said,)),
        "message": called,
    }
    with store_of_home(tmp_path, make=True) as store:
        for turn in ("bad", "learned"):
            add_judged(store, turn, verdict, **whose)
            store.answer(turn, [said], answered_by=None, now=1.0)
        add(store, "open", now=time.time(), **whose)
        store.commit_version(a_version(0), now=1.0)
        store.commit_version(a_version(1, ["learned"]), now=2.0)
        store.set_status("learn", False, HOSTILE, now=1.0)
        store.decided(Event(kind=EventKind.HOLD, at=1.0, version=0, evidence=1.0, words=HOSTILE))
        store.pause(HOSTILE, now=1.0)
        store.add_key(HOSTILE, ["chat"], "hash", now=1.0)
    return tmp_path


def test_json_holds_hostile_words_whole(hostile: Path) -> None:
    result = run.invoke(app, ["turns", "--json", "--home", str(hostile)])
    assert {json.loads(line)["session"] for line in result.stdout.splitlines()} == {HOSTILE}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_what_a_terminal_obeys(hostile: Path, command: list[str]) -> None:
    result = run.invoke(app, [*command, "--home", str(hostile)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.exception
    assert not [hex(ord(control)) for control in OBEYED if control in result.output]


def test_what_is_shown_of_it_is_seen(hostile: Path) -> None:
    shown = run.invoke(app, ["show", "bad", "--home", str(hostile)], env={"COLUMNS": "200"}).output
    assert SEEN in shown


def test_an_error_that_names_it_is_plain(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", HOSTILE, "--home", str(hostile)])
    said = capsys.readouterr().err
    assert said.startswith("afterwit: ")
    assert plain(said) == said


def test_a_panel_of_it_keeps_its_shape() -> None:
    console = Terminal()
    console.file = StringIO()
    console.print(Text(f"a{HOSTILE}b"), Text("a" + SEEN + "b"), sep="\n")
    first, second = console.file.getvalue().splitlines()
    assert first == second


def test_a_line_of_the_log_is_plain() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "the judge says %s\nsecond line", (HOSTILE,), None)
    assert PlainFormatter("%(message)s").format(record) == f"the judge says {SEEN}\nsecond line"


def test_a_home_is_shown_as_it_is_called() -> None:
    runtime = SimpleNamespace(
        off={"judge": HOSTILE},
        url="http://[::1]:1/v1",
        page="http://[::1]:1/ui",
        engine=SimpleNamespace(facts=SimpleNamespace(model=HOSTILE), version=3),
        practises=False,
    )
    console = Terminal()
    console.file = StringIO()
    greet(console, runtime, Path("/homes/[v2]"))  # type: ignore[arg-type] # what it reads of one
    assert console.file.getvalue().splitlines() == [
        f"judge: {SEEN}",
        f"serving {SEEN}, version 3",
        "point an agent at http://[::1]:1/v1, model name afterwit; home /homes/[v2]",
        "the page is at http://[::1]:1/ui",
    ]


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\nb", "\x1b[31m", "\u202e", "x" * 65, "\ud800"])
def test_a_key_is_named_with_what_can_be_read(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    assert "its name is 1 to 64 printable characters" in str(
        run.invoke(app, ["keys", "add", name, "--home", str(home)]).exception
    )
    assert not home.exists()
