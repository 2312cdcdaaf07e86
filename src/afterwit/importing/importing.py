"""`afterwit import`: conversations recorded elsewhere become turns of the home."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from afterwit.binding.request import ClientSession, read_request
from afterwit.errors import TurnNotFound
from afterwit.importing.recorded import BadLine, read, steps_of
from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.turn import Message, RecordedTurn


@dataclass(slots=True, kw_only=True)
class Imported:
    """The result of an import, or of a dry run."""

    conversations: int = 0
    turns: int = 0
    known: int = 0
    bad: list[BadLine] = field(default_factory=list)


def import_lines(
    lines: Iterable[bytes],
    store: Store | None,
    *,
    judge: bool,
    dry_run: bool,
    now: Callable[[], float],
    practise: str | None = None,
) -> Imported:
    """Import the conversations of a file's lines. Bad lines are skipped and listed.

    A conversation is stored as a whole or not at all. With `judge` its turns wait for the judge, otherwise
    they end at once. With `dry_run` nothing is stored, and no store is needed. `practise`: the key whose
    lessons the corrections become; None: they are shown alone.
    """
    done = Imported()
    for found in read(lines):
        if isinstance(found, BadLine):
            done.bad.append(found)
            continue
        steps = [(_source(turn, practise), followed) for turn, followed in steps_of(found, now=now())]
        new = [(turn, followed) for turn, followed in steps if not _is_known(store, turn.id)]
        done.conversations += 1
        done.turns += len(new)
        done.known += len(steps) - len(new)
        if store is not None and not dry_run:
            with store.transaction():
                for turn, followed in new:
                    _add(store, turn, followed, judge=judge, now=now())
    return done


def counting(lines: Iterable[bytes], advance: Callable[[int], object]) -> Iterator[bytes]:
    """The same lines. `advance` is called with the bytes of each processed line."""
    for line in lines:
        yield line
        advance(len(line))


def _source(turn: RecordedTurn, practise: str | None) -> RecordedTurn:
    """The turn as one of this key, which teaches; without a key it teaches no one."""
    scope = turn.scope if practise is None else f"{practise}/{turn.scope}"
    return replace(turn, scope=scope, teaches=practise is not None)


def _is_known(store: Store | None, turn: str) -> bool:
    try:
        return store is not None and store.resolve(turn) == turn
    except TurnNotFound:
        return False


def _add(store: Store, turn: RecordedTurn, followed: tuple[Message, ...], *, judge: bool, now: float) -> None:
    client, said = ClientSession(), turn.conversation
    request = read_request(turn=turn.id, scope=turn.scope, conversation=said, client=client, streamed=False)
    full_hash, full_depth = request.full(turn.message)
    reason = None if judge else Reason.NOT_SAMPLED_HERE
    if not followed:
        reason = Reason.NO_NEXT_STATE
    if not (turn.message.content or turn.message.tool_calls):
        reason = Reason.EMPTY_RESPONSE
    store.add_turn(
        turn,
        prompt_hash=request.prompt_hash,
        full_hash=full_hash,
        depth=request.depth,
        full_depth=full_depth,
        delivered=True,
        reason=reason,
        now=now,
    )
    if followed:
        store.answer(turn.id, followed, answered_by=None, now=now)
