"""Checks of the store after a client ran its errands."""

from __future__ import annotations

import json
from collections.abc import Sequence

from afterwit.lifecycle import Reason, State
from afterwit.store import Record
from afterwit.turn import Finish, Kind, turn_of_call
from tests.clients.errand import ERRANDS, SHELLS, Errand, ScriptedModel


def check(records: Sequence[Record], errands: Sequence[Errand], model: ScriptedModel) -> None:
    """AssertionError unless every response was recorded and bound as it should be."""
    line = [record for record in records if record.turn.kind is Kind.MAIN]
    beside = [record for record in records if record.turn.kind is not Kind.MAIN]
    assert sorted(_text(record, model) for record in records) == sorted(model.said), "a response was lost"
    assert [_shown(record) for record in line] == [
        shown for errand in errands for shown in (errand.command, errand.answer)
    ], "the main line is another"
    _check_line(line, errands)
    for record in beside:
        assert (record.turn.kind, record.reason) == (Kind.SIDE, Reason.SIDE_TURN), _shown(record)


def _check_line(line: Sequence[Record], errands: Sequence[Errand]) -> None:
    assert len({record.turn.session for record in line}) == 1, "the conversation is in several sessions"
    assert [record.turn.parent for record in line] == [None, *(record.turn.id for record in line[:-1])]
    assert [record.state for record in line] == [*[State.ANSWERED] * (len(line) - 1), State.OPEN]
    for at, errand in enumerate(errands):
        call, answer = line[2 * at], line[2 * at + 1]
        assert (call.turn.finish, answer.turn.finish) == (Finish.TOOL_CALLS, Finish.STOP)
        _check_result(call, errand)
        if at + 1 < len(errands):
            _check_reply(answer, errands[at + 1])


def _check_result(call: Record, errand: Errand) -> None:
    """The tool's result is the next state of its call, and nothing else is."""
    assert call.next_state is not None
    (result,) = [message for message in call.next_state.messages if message.role == "tool"]
    assert turn_of_call(result.tool_call_id or "") == call.turn.id
    assert errand.result in (result.content or ""), result.content


def _check_reply(answer: Record, asked: Errand) -> None:
    """The person's next message is the next state of the answer."""
    assert answer.next_state is not None
    said = [message.content or "" for message in answer.next_state.messages]
    assert any(asked.asked in text for text in said), said
    assert all(message.role == "user" for message in answer.next_state.messages)


def _text(record: Record, model: ScriptedModel) -> str:
    """The sampled text of a turn, its end token left out."""
    ids = record.turn.sampled.ids
    return model.renderer.decode(ids[:-1] if ids[-1] in model.renderer.end_ids else ids)


def _shown(record: Record) -> str:
    """The command of a turn that calls, else its text."""
    message = record.turn.message
    if not message.tool_calls:
        return message.content or ""
    (call,) = message.tool_calls
    given = json.loads(call.arguments)
    return next(
        (each.command for each in ERRANDS if SHELLS[call.name](each.command) == given), call.arguments
    )
