"""Versions on a terminal: the table, and the ledger of what each learned from which turns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from afterwit import build
from afterwit.config import Settings, home_of, load
from afterwit.errors import SettingError
from afterwit.home.model import model_folder
from afterwit.practice.table import learned_from
from afterwit.printing.names import session_named
from afterwit.printing.terminal import WIDE, Terminal, Working, moment, unlisted, working, write_json
from afterwit.promotion.episodes import EventKind
from afterwit.store import Filter, LearnedTurn, Record, Store, VersionRecord
from afterwit.text import counted, listed, signed
from afterwit.turn import SHARED, Turn, one_line
from afterwit.verdict import Question, Verdict
from afterwit.version import Origin

WIDTH = 100
MOST_TOKENS = 256
"""Tokens of an answer at most."""
EVENTS = 8
"""Holds and alarms that are listed with the versions."""

Answers = tuple[str, str]
"""Of one prompt, before and after an update."""


class Entry(NamedTuple):
    """A turn, and what learned from it."""

    turn: str
    record: Record | None
    """None: its content is gone."""
    learned: Sequence[LearnedTurn]


def print_versions(home: Path | None, *, adapter: str | None, limit: int, json: bool) -> None:
    """`afterwit versions`: the newest last, at most `limit`; 0: all."""
    with build.store_of_home(home) as store:
        every, events = store.versions(adapter), store.events(adapter)
        rows = every[-limit:]
        served = {store.latest_published(each) for each in {SHARED, *(row.adapter for row in rows)}}
    if json:
        for row in rows:
            write_json(row)
        return
    confirmed = {event.version for event in events if event.kind is EventKind.CONFIRM}
    console = Terminal()
    console.print(version_table(rows, served, confirmed, width=console.width))
    if len(rows) < len(every):
        console.say(unlisted(len(rows), "version", len(every)), style="dim")
    for event in [event for event in events if event.kind is not EventKind.CONFIRM][-EVENTS:]:
        whose = "" if event.adapter == SHARED else f"{event.adapter} "
        at = moment(event.at, year=False)
        console.print(Text(f"{at} {whose}{event.kind}: {event.words}", style="yellow"))


def print_ledger(
    home: Path | None,
    *,
    version: int | None,
    session: str | None,
    answers: bool,
    json: bool,
    config: Path | None,
) -> None:
    """`afterwit ledger`: of a version, by default the newest that learned something; or of a `session`."""
    if session is not None and (version is not None or answers):
        raise SettingError("--session shows all versions of a conversation: give it alone")
    console, sampled = Terminal(), dict[str, Answers]()
    with build.store_of_home(home) as store:
        if session is not None:
            listed = _of_session(store, session_named(store, session))
        else:
            chosen = _chosen(store.versions(), version)
            learned = sorted(store.learned(version=chosen.number), key=lambda one: (one.replayed, one.turn))
            listed = [Entry(one.turn, store.find(one.turn), [one]) for one in learned]
            if answers:
                found = [entry.record.turn for entry in listed if entry.record is not None]
                turns = [turn for turn in found if isinstance(turn, Turn)]
                settings = load(home=home, file=config)
                with working("loading both versions") as line:
                    sampled = _answers(settings, home_of(home), chosen.number, turns, line)
            if not json:
                served = {store.latest_published(chosen.adapter)}
                console.print(version_table([chosen], served, width=console.width))
                for number, words, count in learned_from(store, [entry.turn for entry in listed]):
                    console.print(Text(f"lesson {number}: {words} ({counted(count, 'turn')})", style="bold"))
        fates = _fates(store, listed)
    for entry in listed:
        if json:
            write_json(_as_json(entry, fates, sampled.get(entry.turn)))
            continue
        for text in _lines(entry, fates, sampled.get(entry.turn)):
            console.print(text)


def became(store: Store, record: Record) -> list[Text]:
    """The versions that learned from a turn, with effect and fate."""
    entry = Entry(record.turn.id, record, store.learned(turns=[record.turn.id]))
    return list(_learned(entry, _fates(store, [entry])))


def _of_session(store: Store, session: str) -> list[Entry]:
    """Its turns, oldest first, each with all versions that learned from it."""
    records = {record.turn.id: record for record in store.turns(Filter(session=session))}
    learned: dict[str, list[LearnedTurn]] = {turn: [] for turn in records}
    for each in store.learned(turns=list(records)):
        learned[each.turn].append(each)
    return [Entry(turn, record, learned[turn]) for turn, record in records.items()]


def _chosen(versions: Sequence[VersionRecord], number: int | None) -> VersionRecord:
    if number is None:
        found = next((each for each in reversed(versions) if each.origin is Origin.UPDATE), None)
        if found is None:
            raise SettingError("nothing has been learned here yet")
        return found
    found = next((each for each in versions if each.number == number), None)
    if found is None:
        known = listed([each.number for each in versions]) or "none"
        raise SettingError(f"there is no version {number}; there are: {known}")
    return found


def _fates(store: Store, listed: Sequence[Entry]) -> dict[int, str]:
    """Whether the learning of each version is served, or was taken back; lost versions have no fate."""
    numbers, versions = {each.version for entry in listed for each in entry.learned}, store.versions()
    taken = {number: each.number for each in reversed(versions) for number in each.reverts}
    fates = {}
    for version in versions:
        if version.number in taken:
            fates[version.number] = f"taken back by version {taken[version.number]}"
        elif version.number in numbers:
            served = version.number <= store.latest_published(version.adapter)
            fates[version.number] = "in what is served" if served else "not served yet"
    return fates


def _lines(entry: Entry, fates: Mapping[int, str], answers: Answers | None) -> Iterator[Text]:
    record = entry.record
    if record is None:
        yield Text(f"{entry.turn}  its content is gone", style="dim")
    else:
        reason = f" ({record.reason})" if record.reason else ""
        yield Text(f"{entry.turn}  {record.state}{reason} · session {record.turn.session}", style="bold")
        yield Text(f"  response: {one_line(record.turn.message, WIDTH)}")
        if record.next_state is not None:
            for message in record.next_state.messages:
                yield Text(f"  then: {message.role}: {one_line(message, WIDTH)}", style="magenta")
            if (feedback := record.next_state.feedback) is not None:
                reward = "" if feedback.reward is None else f" {signed(feedback.reward)}"
                words = f": {feedback.words}" if feedback.words else ""
                yield Text(f"  then: feedback{reward}{words}", style="magenta")
        if record.verdict is not None:
            yield from _judged(record.verdict)
    yield from _learned(entry, fates)
    if answers is not None:
        yield Text(f"  before: {answers[0]}", style="cyan")
        yield Text(f"  after:  {answers[1]}", style="cyan")


def _judged(verdict: Verdict) -> Iterator[Text]:
    parts = [f"reward {signed(verdict.reward)} by {verdict.source}"]
    for question in Question:
        votes = [vote.value for vote in verdict.votes if vote.question is question]
        if votes:
            values = ", ".join("invalid" if value is None else signed(value) for value in votes)
            parts.append(f"{question} votes {values}")
    yield Text(f"  {' · '.join(parts)}")
    yield from (Text(f"  hint: {hint}") for hint in verdict.hints)


def _learned(entry: Entry, fates: Mapping[int, str]) -> Iterator[Text]:
    """Each version that learned from the turn, with log-probs before and after in nats a token."""
    for each in entry.learned:
        again = " again" if each.replayed else ""
        end = fates.get(each.version, "which is lost")
        yield Text(f"  learned{again} in version {each.version}, {end}", style="green")
        if (effect := each.effect) is not None:
            after = "not measured" if effect.after is None else f"{effect.after:z.3f}"
            line = f"    log-prob a token {effect.before:z.3f} -> {after}"
            if effect.hinted_before is not None:
                line += f"; of the teacher with the hint {effect.hinted_before:z.3f}"
            yield Text(line, style="green")


def _as_json(entry: Entry, fates: Mapping[int, str], answers: Answers | None) -> dict[str, Any]:
    record = entry.record
    state = None if record is None else record.next_state
    return {
        "turn": entry.turn,
        "session": record and record.turn.session,
        "state": record and record.state,
        "reason": record and record.reason,
        "response": record and record.turn.message.to_dict(),
        "next_state": [message.to_dict() for message in state.messages] if state else [],
        "feedback": asdict(state.feedback) if state and state.feedback else None,
        "verdict": asdict(record.verdict) if record and record.verdict else None,
        "learned": [
            {
                "version": each.version,
                "replayed": each.replayed,
                "fate": fates.get(each.version),
                "effect": asdict(each.effect) if each.effect else None,
            }
            for each in entry.learned
        ],
        "answers": None if answers is None else {"before": answers[0], "after": answers[1]},
    }


def _answers(
    settings: Settings, home: Path, number: int, turns: Sequence[Turn], line: Working
) -> dict[str, Answers]:
    """By turn, the most likely answers of both versions. SettingError if the weights of either are gone."""
    import torch

    from afterwit.chat_format.render import Renderer
    from afterwit.learning.policy import Policy

    folder = model_folder(settings.model, home)
    versions, renderer = build.versions_of(home, folder, settings.versions), Renderer.load(folder)
    versions.follow()
    version = versions.get(number)
    if version is None or version.parent is None:
        raise SettingError(f"version {number} has no version before it to compare with")
    learner = build.learner_settings(settings.learner, home, folder)
    found, both = [], (version.parent, number)
    for each in both:  # both are there, before the slow work with the first
        versions.weights(each)
    for each in both:
        line.step(f"loading version {each}")
        model, said = Policy.load(versions, each, learner).model, []
        for at, turn in enumerate(turns):
            line.step(f"answering with version {each}", at, len(turns))
            prompt = torch.tensor([turn.prompt_ids], device=model.device)
            with torch.no_grad():
                ids = model.generate(
                    input_ids=prompt,
                    attention_mask=torch.ones_like(prompt),
                    do_sample=False,
                    max_new_tokens=min(MOST_TOKENS, settings.gateway.max_tokens),
                    eos_token_id=sorted(renderer.end_ids) or None,
                    pad_token_id=0,
                )
            response = ids[0, prompt.shape[1] :].tolist()
            kept = list(takewhile(lambda token: token not in renderer.end_ids, response))
            said.append(" ".join(renderer.decode(kept).split()))
        found.append(said)
    return {turn.id: pair for turn, pair in zip(turns, zip(*found, strict=True), strict=True)}


def version_table(
    versions: Sequence[VersionRecord],
    serving: Collection[int],
    confirmed: Collection[int] = (),
    *,
    width: int,
) -> Table:
    """One row a version in `width` columns: numbers and times are whole, the standing may be cut.

    Adapters are named if there are others than the shared one. A narrow table leaves out `served since`.
    """
    names = ["version", "how", "made", "learned from", "to the teacher", "standing", "served since"]
    rows = [_version_row(version, serving, confirmed) for version in versions]
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
    how, way = version.origin.value, version.metrics.get("way_to_teacher")
    if version.restores is not None:
        how += f" of {version.restores}"
    elif version.parent not in (None, version.number - 1):
        how += f" of {version.parent}"
    replayed = f" +{version.replayed} again" if version.replayed else ""
    standing = Text("confirmed", style="green")
    if version.number not in confirmed:
        standing = Text(_lost(version), style="yellow")
    source = f"{counted(version.trained, 'turn')}{replayed}" if version.trained or version.replayed else ""
    return [
        f"{version.number}{' *' if version.number in serving else ''}",
        how,
        moment(version.committed_at, year=False),
        "earlier updates" if version.origin is Origin.REPLAY else source,
        "" if way is None else f"{way:z.0%}",
        standing,
        moment(version.published_at, year=False),
    ]


def _lost(version: VersionRecord) -> str:
    """Of which kind of approved answers it lost the greatest share, and how many; empty: of none."""
    if version.suite is None or (worst := version.suite.worst) is None:
        return ""
    lost, of = version.suite.lost[worst]
    return f"lost {lost} of {of} approved `{worst}`"
