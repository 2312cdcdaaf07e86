"""Versions on a terminal: the table, and the ledger of what each learned from which turns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from afterwit import build
from afterwit.adapters import SHARED
from afterwit.config import Settings
from afterwit.errors import SettingError, TurnNotFound
from afterwit.message import one_line
from afterwit.printing.terminal import WIDE, short_moment
from afterwit.promotion.events import Event, EventKind
from afterwit.store import Filter, LearnedTurn, Record, Store, VersionRecord
from afterwit.text import counted
from afterwit.turn import Turn
from afterwit.verdict import Question, Verdict
from afterwit.version import Effect, Origin

if TYPE_CHECKING:
    from afterwit.learning.policy import Policy

WIDTH = 100
"""Characters of a response in a line."""

MOST_TOKENS = 256
"""Tokens of an answer at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A turn, and the versions that learned from it."""

    turn: str
    record: Record | None
    """None: its content is gone."""
    learned: tuple[LearnedTurn, ...]


def of_version(store: Store, number: int) -> list[LedgerEntry]:
    """The turns that trained a version: new ones first, then replayed ones."""
    found = store.learned(version=number)
    return [
        LedgerEntry(turn=each.turn, record=_record(store, each.turn), learned=(each,))
        for each in sorted(found, key=lambda each: (each.replayed, each.turn))
    ]


def of_turns(store: Store, records: Sequence[Record]) -> list[LedgerEntry]:
    """These turns, each with all versions that learned from it."""
    learned: dict[str, list[LearnedTurn]] = {record.turn.id: [] for record in records}
    for each in store.learned(turns=list(learned)):
        learned[each.turn].append(each)
    return [
        LedgerEntry(turn=record.turn.id, record=record, learned=tuple(learned[record.turn.id]))
        for record in records
    ]


def of_session(store: Store, session: str) -> list[LedgerEntry]:
    """The turns of a session, oldest first. SettingError if it has none whose content is there."""
    records = list(store.turns(Filter(session=session)))
    if not records:
        raise SettingError(
            f"no turn of session {session} is in the store: `afterwit show TURN` names a turn's session"
        )
    return of_turns(store, records)


def chosen_version(versions: Sequence[VersionRecord], number: int | None) -> VersionRecord:
    """The version of this number; None: the newest that learned something. SettingError if there is none."""
    if number is None:
        found = next((each for each in reversed(versions) if each.origin is Origin.UPDATE), None)
        if found is None:
            raise SettingError("nothing has been learned here yet")
        return found
    found = next((each for each in versions if each.number == number), None)
    if found is None:
        known = ", ".join(str(each.number) for each in versions) or "none"
        raise SettingError(f"there is no version {number}; there are: {known}")
    return found


def fate(number: int, versions: Sequence[VersionRecord], serving: int) -> str:
    """Whether a version's learning is served, or was taken back."""
    taken = next((each for each in versions if number in each.reverts), None)
    if taken is not None:
        return f"taken back by version {taken.number}"
    return "in what is served" if number <= serving else "not served yet"


def lines(
    entry: LedgerEntry, fates: Mapping[int, str], *, answers: tuple[str, str] | None = None
) -> Iterator[Text]:
    """An entry in lines."""
    record = entry.record
    if record is None:
        yield Text(f"{entry.turn}  its content is gone", style="dim")
    else:
        reason = f" ({record.reason})" if record.reason else ""
        head = f"{entry.turn}  {record.state}{reason} · session {record.turn.session}"
        yield Text(head, style="bold")
        yield Text(f"  response: {one_line(record.turn.message, WIDTH)}")
        for text in said(record):
            yield Text(f"  then: {text}", style="magenta")
        yield from (Text(f"  {text}") for text in judged(record.verdict))
    yield from _learned(entry, fates)
    if answers is not None:
        yield Text(f"  before: {answers[0]}", style="cyan")
        yield Text(f"  after:  {answers[1]}", style="cyan")


def became(store: Store, record: Record) -> list[Text]:
    """The versions that learned from a turn, with effect and fate."""
    (entry,) = of_turns(store, [record])
    return list(_learned(entry, all_fates({each.version for each in entry.learned}, store)))


def _learned(entry: LedgerEntry, fates: Mapping[int, str]) -> Iterator[Text]:
    for each in entry.learned:
        again = " again" if each.replayed else ""
        end = fates.get(each.version, "which is lost")
        yield Text(f"  learned{again} in version {each.version}, {end}", style="green")
        if each.effect is not None:
            yield Text(f"    {effect_line(each.effect)}", style="green")


def said(record: Record) -> Iterator[str]:
    """The next state of a response, one line for each message, and the feedback."""
    if record.next_state is None:
        return
    for message in record.next_state.messages:
        yield f"{message.role}: {one_line(message, WIDTH)}"
    if (feedback := record.next_state.feedback) is not None:
        reward = "" if feedback.reward is None else f" {feedback.reward:+d}"
        yield f"feedback{reward}{': ' + feedback.text if feedback.text else ''}"


def judged(verdict: Verdict | None) -> Iterator[str]:
    """The reward with its votes, and the hints."""
    if verdict is None:
        return
    parts = [f"reward {verdict.reward:+d} by {verdict.source}"]
    for question in Question:
        votes = [vote for vote in verdict.votes if vote.question is question]
        if votes:
            values = ", ".join("invalid" if vote.value is None else f"{vote.value:+d}" for vote in votes)
            parts.append(f"{question} votes {values}")
    yield " · ".join(parts)
    for hint in verdict.hints:
        yield f"hint: {hint}"


def effect_line(effect: Effect) -> str:
    """Log-probs before and after, in nats a token."""
    after = "not measured" if effect.after is None else f"{effect.after:.3f}"
    line = f"log-prob a token {effect.before:.3f} -> {after}"
    if effect.hinted_before is not None:
        line += f"; of the teacher with the hint {effect.hinted_before:.3f}"
    return line


def as_json(
    entry: LedgerEntry, fates: Mapping[int, str], *, answers: tuple[str, str] | None = None
) -> dict[str, Any]:
    """The same for programs."""
    record, verdict = entry.record, None if entry.record is None else entry.record.verdict
    feedback = None if record is None or record.next_state is None else record.next_state.feedback
    return {
        "turn": entry.turn,
        "session": None if record is None else record.turn.session,
        "state": None if record is None else record.state,
        "reason": None if record is None else record.reason,
        "response": None if record is None else record.turn.message.to_dict(),
        "next_state": []
        if record is None or record.next_state is None
        else [message.to_dict() for message in record.next_state.messages],
        "feedback": None if feedback is None else asdict(feedback),
        "verdict": None if verdict is None else asdict(verdict),
        "learned": [
            {
                "version": each.version,
                "replayed": each.replayed,
                "fate": fates.get(each.version),
                "effect": None if each.effect is None else asdict(each.effect),
            }
            for each in entry.learned
        ],
        "answers": None if answers is None else {"before": answers[0], "after": answers[1]},
    }


def all_fates(numbers: Collection[int], store: Store) -> dict[int, str]:
    """The fate of each of these versions that is known."""
    versions = store.versions()
    known = {each.number: each.adapter for each in versions if each.number in numbers}
    serving = {adapter: store.latest_published(adapter) for adapter in set(known.values())}
    return {number: fate(number, versions, serving[adapter]) for number, adapter in known.items()}


def _record(store: Store, turn: str) -> Record | None:
    try:
        return store.turn(turn)
    except TurnNotFound:
        return None


def answers(
    settings: Settings, home: Path, folder: Path, number: int, turns: Sequence[Turn]
) -> dict[str, tuple[str, str]]:
    """Turn -> answers before and after. SettingError if the weights of either version are gone."""
    from afterwit.chat_format.render import Renderer
    from afterwit.learning.policy import Policy

    versions = build.versions_of(home, folder, settings.versions)
    renderer = Renderer.load(folder)
    versions.follow()
    version = versions.get(number)
    if version is None or version.parent is None:
        raise SettingError(f"version {number} has no version before it to compare with")
    learner = build.learner_settings(settings.learner, home, folder)
    found = []
    for each in (version.parent, number):
        policy = Policy.load(versions, each, learner)
        said = (_greedy(policy, turn, renderer.end_ids) for turn in turns)
        found.append([" ".join(renderer.decode(ids).split()) for ids in said])
    return {turn.id: pair for turn, pair in zip(turns, zip(*found, strict=True), strict=True)}


def _greedy(policy: Policy, turn: Turn, end_ids: Collection[int]) -> list[int]:
    """The most likely ids, up to the end of the turn."""
    import torch

    prompt = torch.tensor([turn.prompt_ids], device=policy.model.device)
    with torch.no_grad():
        ids = policy.model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=MOST_TOKENS,
            pad_token_id=0,
        )
    return list(takewhile(lambda token: token not in end_ids, ids[0, prompt.shape[1] :].tolist()))


def version_table(
    versions: Sequence[VersionRecord],
    serving: Collection[int],
    confirmed_versions: Collection[int] = (),
    *,
    width: int,
) -> Table:
    """One row a version in `width` columns: numbers and times are whole, the standing may be cut.

    Adapters are named if there are others than the shared one. A narrow table leaves out `served since`.
    """
    names = ["version", "how", "made", "learned from", "loss", "standing", "served since"]
    rows = [_version_row(version, serving, confirmed_versions) for version in versions]
    if any(version.adapter != SHARED for version in versions):
        names.insert(1, "adapter")
        for row, version in zip(rows, versions, strict=True):
            row.insert(1, version.adapter if version.number else "")
    table = Table(box=None, pad_edge=False)
    for at, name in enumerate(names[: None if width >= WIDE else -1]):
        whole = max(len(name), *(len(row[at]) for row in rows)) if rows and name != "standing" else None
        table.add_column(name, no_wrap=True, min_width=whole, overflow="ellipsis")
    for row in rows:
        table.add_row(*row[: len(table.columns)])
    return table


def _version_row(
    version: VersionRecord, serving: Collection[int], confirmed: Collection[int]
) -> list[str | Text]:
    loss = version.metrics.get("loss")
    how = version.origin.value
    if version.restores is not None:
        how += f" of {version.restores}"
    elif version.parent not in (None, version.number - 1):
        how += f" of {version.parent}"
    replayed = f" +{version.replayed} again" if version.replayed else ""
    return [
        f"{version.number}{' *' if version.number in serving else ''}",
        how,
        short_moment(version.created),
        f"{counted(version.trained, 'turn')}{replayed}" if version.trained or version.replayed else "",
        "" if loss is None else f"{loss:.4f}",
        _standing(version, confirmed),
        short_moment(version.published_at),
    ]


def _standing(version: VersionRecord, confirmed: Collection[int]) -> Text:
    if version.number in confirmed:
        return Text("confirmed", style="green")
    worst = None if version.suite is None else version.suite.worst
    return Text("" if worst is None else f"lost some `{worst}`", style="yellow")


def event_lines(events: Sequence[Event]) -> list[Text]:
    """A line for each hold and alarm, the newest last."""
    return [
        Text(f"{short_moment(event.at)} {_whose(event)}{event.kind}: {event.words}", style="yellow")
        for event in events
        if event.kind is not EventKind.CONFIRM
    ]


def _whose(event: Event) -> str:
    return "" if event.adapter == SHARED else f"{event.adapter} "
