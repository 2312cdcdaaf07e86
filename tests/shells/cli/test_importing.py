"""`afterwit import`: what it stores, and that it stores it once."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import FrameType

import pytest

from afterwit.binding.request import ClientSession, _hash, read_request
from afterwit.cli.app import main
from afterwit.importing.importing import import_lines
from afterwit.lifecycle import Reason, State
from afterwit.store import Store
from afterwit.turn import Turn
from tests.store.databases import store_in_memory

CONVERSATION = {
    "messages": [
        {"role": "user", "content": "Open it."},
        {"role": "assistant", "content": "Which file?"},
        {"role": "user", "content": "The list."},
        {"role": "assistant", "content": "It says milk."},
    ]
}
LINES = [json.dumps(CONVERSATION).encode()]


def imported(store: Store, lines: list[bytes] = LINES, *, judge: bool = True) -> tuple[int, int]:
    done = import_lines(lines, store, judge=judge, dry_run=False, now=lambda: 100.0)
    return done.turns, done.known


def test_a_response_with_a_reply_waits_for_the_judge_and_the_last_one_ends() -> None:
    store = store_in_memory()
    assert imported(store) == (2, 0)
    asked, last = store.turns()
    assert not isinstance(asked.turn, Turn)
    assert (asked.state, last.state, last.reason) == (State.ANSWERED, State.SKIPPED, Reason.NO_NEXT_STATE)
    assert asked.next_state is not None
    assert [message.content for message in asked.next_state.messages] == ["The list."]
    assert last.turn.parent == asked.turn.id


def test_a_second_import_brings_only_what_is_new() -> None:
    store = store_in_memory()
    imported(store)
    other = CONVERSATION | {"messages": [{"role": "user", "content": "Hi."}, CONVERSATION["messages"][1]]}
    assert imported(store, [*LINES, json.dumps(other).encode()]) == (1, 2)


def test_without_a_judge_turns_end_at_once_and_keep_what_was_said_next() -> None:
    store = store_in_memory()
    imported(store, judge=False)
    asked, _ = store.turns()
    assert (asked.state, asked.reason) == (State.SKIPPED, Reason.NOT_SAMPLED_HERE)
    assert asked.next_state is not None


def hashed(responses: int) -> int:
    """How many fingerprints the import of a conversation computes."""
    line, calls = json.dumps({"messages": CONVERSATION["messages"][:2] * responses}).encode(), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is _hash.__code__

    store = store_in_memory()
    sys.setprofile(count)
    try:
        imported(store, [line])
    finally:
        sys.setprofile(None)
    return calls


def test_each_message_of_a_conversation_is_hashed_once() -> None:
    assert 40 <= hashed(20) <= 60


def test_an_imported_turn_is_found_by_the_request_that_it_answered() -> None:
    store = store_in_memory()
    imported(store)
    for record in store.turns():
        turn, client = record.turn, ClientSession()
        request = read_request(
            turn="t", scope=turn.scope, conversation=turn.conversation, client=client, streamed=False
        )
        found = store.candidates(turn.scope, [request.full(turn.message)[0]], [])
        assert turn.id in [each.turn for each in found]


def test_the_command_names_bad_lines_and_imports_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, home = tmp_path / "chats.jsonl", tmp_path / "home"
    file.write_bytes(b"\n".join([*LINES, b"{"]))

    def run(*more: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["import", str(file), "--home", str(home), *more])
        assert ended.value.code == 1
        said = capsys.readouterr()
        assert "line 2: not valid JSON" in said.err
        return said.out

    assert "2 turns of 1 conversation would be imported; 1 line left out" in run("--dry-run")
    assert not home.exists()
    assert "2 turns of 1 conversation imported" in run()
    assert "0 turns of 1 conversation imported; 2 were there already" in run()
    with pytest.raises(SystemExit):
        main(["turns", "--home", str(home)])
    assert "imported" in capsys.readouterr().out


@pytest.mark.parametrize("packed", [gzip.compress(b"{}", mtime=0), "{}".encode("utf-16")])
def test_a_packed_file_is_told_from_bad_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bytes
) -> None:
    file = tmp_path / "chats.jsonl.gz"
    file.write_bytes(packed)
    with pytest.raises(SystemExit):
        main(["import", str(file), "--home", str(tmp_path / "home")])
    assert "chats.jsonl.gz is not text in UTF-8: if it is packed, unpack it first" in capsys.readouterr().err
