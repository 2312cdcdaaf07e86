"""From core's nouns to the store's columns, and back.

A turn's columns are of Python's own types. One that is derived from them, as a name is, would be adapted in
the driver of the database, value by value.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.message import Conversation, Message
from afterwit.store.records import Record
from afterwit.store.sql.database import Row
from afterwit.turn import Basis, Finish, ImportedTurn, Kind, RecordedTurn, Sampled, Sampling, Turn
from afterwit.verdict import Feedback, Flag, NextState, Question, Source, Verdict, Vote

ACCEPTED, REFUSED = "yes", "no"
"""What a person said of a verdict."""


NOT_SAMPLED = dict.fromkeys(("prompt_ids", "sampling", "ids", "logprobs", "versions", "forced"), b"") | {
    "basis": ""
}
"""The columns of what was sampled, of a turn that was not sampled here."""


def identity_columns(turn: RecordedTurn) -> dict[str, Any]:
    """The part of `turns` that the turn itself decides."""
    return {
        "id": turn.id,
        "scope": turn.scope,
        "session": turn.session,
        "parent": turn.parent,
        "kind": turn.kind.value,
        "created": turn.created,
        "oldest_version": turn.sampled.oldest_version if isinstance(turn, Turn) else 0,
        "imported": int(not isinstance(turn, Turn)),
    }


def content_columns(turn: RecordedTurn) -> dict[str, Any]:
    """The row of `contents`, without `seq`."""
    return {
        "model": turn.model,
        "conversation": _conversation(turn.conversation),
        **(_sampled_columns(turn) if isinstance(turn, Turn) else NOT_SAMPLED),
        "message": orjson.dumps(turn.message.to_dict()),
        "finish": turn.finish.value,
        "teaches": int(turn.teaches),
    }


def _conversation(conversation: Conversation) -> bytes:
    """What stays the same in a session comes first, what grows behind it: turns share their beginnings."""
    data = conversation.to_dict()
    return orjson.dumps({"tools": data.pop("tools"), **data})


def _sampled_columns(turn: Turn) -> dict[str, Any]:
    sampled = turn.sampled
    return {
        "prompt_ids": pack_ids(turn.prompt_ids),
        "sampling": orjson.dumps(turn.sampling),
        "ids": pack_ids(sampled.ids),
        "logprobs": pack_floats(sampled.logprobs),
        "versions": pack_runs(sampled.versions),
        "forced": pack_flags(sampled.forced),
        "basis": sampled.basis.value,
        "cache_version": sampled.cache_version,
    }


def read_turn(row: Row, whole: Mapping[str, bytes]) -> RecordedTurn:
    """From a row of `turns` joined with `contents`, and the whole values of its growing columns."""
    said: dict[str, Any] = {
        "id": row["id"],
        "scope": row["scope"],
        "session": row["session"],
        "parent": row["parent"],
        "kind": Kind(row["kind"]),
        "created": row["created"],
        "model": row["model"],
        "conversation": Conversation.from_dict(orjson.loads(whole["conversation"])),
        "message": read_message(row["message"]),
        "finish": Finish(row["finish"]),
        "teaches": bool(row["teaches"]),
    }
    if row["imported"]:
        return ImportedTurn(**said)
    return Turn(
        **said,
        prompt_ids=unpack_ids(whole["prompt_ids"]),
        sampling=_read_sampling(row["sampling"]),
        sampled=_read_sampled(row),
        adapter=row["adapter"],
    )


def _read_sampling(data: bytes) -> Sampling:
    fields = orjson.loads(data)
    fields["stop"] = tuple(fields["stop"])
    fields["stop_ids"] = tuple(fields["stop_ids"])
    fields["logit_bias"] = tuple((token, bias) for token, bias in fields["logit_bias"])
    return Sampling(**fields)


def _read_sampled(row: Row) -> Sampled:
    return Sampled(
        ids=unpack_ids(row["ids"]),
        logprobs=unpack_floats(row["logprobs"]),
        versions=unpack_runs(row["versions"]),
        forced=unpack_flags(row["forced"]),
        basis=Basis(row["basis"]),
        cache_version=row["cache_version"],
    )


def read_message(data: bytes) -> Message:
    return Message.from_dict(orjson.loads(data))


def pack_messages(messages: Sequence[Message]) -> bytes:
    return orjson.dumps([message.to_dict() for message in messages])


def unpack_messages(data: bytes | None) -> tuple[Message, ...]:
    return tuple(Message.from_dict(message) for message in orjson.loads(data or b"[]"))


def vote_columns(seq: int, place: int, vote: Vote) -> dict[str, Any]:
    return {
        "seq": seq,
        "place": place,
        "question": vote.question,
        "words": vote.words,
        "value": vote.value,
        "hint": vote.hint,
        "rejected": vote.rejected,
    }


def read_vote(row: Row) -> Vote:
    return Vote(
        question=Question(row["question"]),
        words=row["words"],
        value=row["value"],
        hint=row["hint"],
        rejected=row["rejected"],
    )


def read_next_state(messages: bytes | None, feedback: Row | None) -> NextState | None:
    """None if nothing followed."""
    if messages is None and feedback is None:
        return None
    said = None if feedback is None else Feedback(reward=feedback["reward"], text=feedback["words"])
    return NextState(messages=unpack_messages(messages), feedback=said)


def read_verdict(row: Row, votes: Sequence[Row]) -> Verdict | None:
    """From a row with the columns of `verdicts`, all None if there is no verdict."""
    if row["reward"] is None:
        return None
    return Verdict(
        reward=row["reward"],
        source=Source(row["source"]),
        hints=tuple(orjson.loads(row["hints"])),
        votes=tuple(read_vote(vote) for vote in votes),
    )


def read_flags(data: bytes | None) -> tuple[Flag, ...]:
    return tuple(Flag(flag) for flag in orjson.loads(data or b"[]"))


def read_record(
    row: Row,
    whole: Mapping[str, bytes],
    votes: Sequence[Row],
    feedback: Row | None,
    trained: Sequence[Row],
) -> Record:
    """From the wide row of `reading.RECORD` and the rows that belong to it."""
    return Record(
        seq=row["seq"],
        turn=read_turn(row, whole),
        state=State(row["state"]),
        reason=None if row["reason"] is None else Reason(row["reason"]),
        moved_at=row["moved_at"],
        delivered=bool(row["delivered"]),
        superseded_by=row["superseded_by"],
        next_state=read_next_state(row["messages"], feedback),
        revision=row["revision"],
        verdict=read_verdict(row, votes),
        rl=bool(row["rl"]),
        opd=bool(row["opd"]),
        trained_in=tuple(item["version"] for item in trained if not item["replayed"]),
        replayed_in=tuple(item["version"] for item in trained if item["replayed"]),
        owner=row["owner"],
        attempts=row["attempts"],
        retry_at=row["retry_at"],
        error=row["error"],
        flags=read_flags(row["flags"]),
        accepted=None if row["review"] is None else row["review"] == ACCEPTED,
    )


def pack_ids(ids: Sequence[int]) -> bytes:
    """4 bytes per id. Raises struct.error past 32 bits."""
    return _pack("i", ids)


def _pack(form: str, values: Sequence[float]) -> bytes:
    """By a Struct's own method: it takes a tuple as it is, where `struct.pack` has it copied."""
    return struct.Struct(f"<{len(values)}{form}").pack(*values)


def unpack_ids(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


def pack_floats(values: Sequence[float]) -> bytes:
    """4 bytes per value: rounded to float32, which is what engines report."""
    return _pack("f", values)


def unpack_floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def pack_runs(values: Sequence[int]) -> bytes:
    """(value, length) pairs: one pair for a response that one version sampled."""
    if values and values.count(values[0]) == len(values):
        return pack_ids((values[0], len(values)))
    return pack_ids([number for value, run in groupby(values) for number in (value, len(tuple(run)))])


def unpack_runs(data: bytes) -> tuple[int, ...]:
    pairs = unpack_ids(data)
    return tuple(value for value, length in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(length))


def pack_flags(flags: Sequence[bool]) -> bytes:
    """A byte per flag."""
    return bytes(flags)


def unpack_flags(data: bytes) -> tuple[bool, ...]:
    return tuple(map(bool, data))
