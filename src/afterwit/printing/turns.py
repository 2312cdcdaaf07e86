"""Turns on a terminal: the table, why turns have no parent, turns for review, and one turn at length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from afterwit.build import store_of_home
from afterwit.config import Settings, home_of, load
from afterwit.lifecycle import Reason, ReasonClass, State
from afterwit.printing.ledger import became
from afterwit.printing.names import session_named, turn_named
from afterwit.printing.terminal import WIDE, Terminal, Working, moment, working, write_json
from afterwit.store import Filter, Record, summary
from afterwit.text import counted, signed
from afterwit.turn import Kind, Message, Turn, one_line
from afterwit.verdict import Feedback, JudgedTurn, Verdict

if TYPE_CHECKING:
    from afterwit.learning.trainer import Advantage, Explained

ID_CHARS = 12
"""Characters of a turn's id that are listed: its millisecond, and ten random bits. More only as needed."""

COLOUR = {
    State.OPEN: "cyan",
    State.ANSWERED: "blue",
    State.JUDGED: "yellow",
    State.TRAINED: "green",
    State.SKIPPED: "bright_black",
}

WIDTH = 200
RESPONSE, GAP = 16, 2
"""Columns that the table keeps for the response, and between two of its cells."""
STATE, WIDE_STATE = 26, 48
"""Columns of the state at most, in a narrow terminal and in a wide one."""
TABLE = 200
"""Rows of one table. A long list has several, because its turns are not all held in memory."""

BEGINS = "begins a session: no recorded prompt and response are the beginning of its request"
NEW_SEGMENT = (
    "continues its session without a parent: after a compaction, as another choice, or in place of a turn"
    " that began it"
)
ASIDE = "is an auxiliary request (a title, a summary, a review){}: it is served and never trains"
SUPERSEDED = "was asked again before its answer had arrived: the later answer takes its place"
BY_REASON = {
    Reason.AMBIGUOUS_PARENT: "continues turns of several sessions equally well, so it answers none: a"
    " session id of the client (X-Session-Id) distinguishes them",
    Reason.UNKNOWN_BRANCH: "shares its parent with another request: the one that is continued becomes"
    " the conversation, and until then neither trains",
    Reason.SUPERSEDED: SUPERSEDED,
    Reason.CLIENT_LEFT: "was left by its client before the answer ended: no one has read it",
}
PRACTISES = "practises a lesson on a recorded request or on one of the model's own: no client got the answer"
IMPORTED = "imported: recorded elsewhere, so its tokens and log-probs are not known and it cannot train"

PROMPT_MESSAGES, MESSAGE_CHARS = 3, 1200
"""The last messages of a prompt that are shown, and the last characters of each."""
STRONG, SEEN = 1.0, 0.02
"""The advantages at which a token's colour is brightest, and from which on it is coloured."""


def print_turns(home: Path | None, where: Filter, *, kind: str, limit: int, json: bool) -> None:
    """`afterwit turns`: the newest first with a `limit`; 0: all, the oldest first."""
    with store_of_home(home) as store:
        if where.session is not None:
            where = replace(where, session=session_named(store, where.session))
        found = store.turns(where, limit=limit or None, newest_first=limit > 0)
        if json:
            for record in found:
                write_json(summary(record) | {"unbound": why_unbound(record)})
            return
        console, unbound, counts = Terminal(), dict[str, list[str]](), store.counts()
        for records in iter(lambda: list(islice(found, TABLE)), []):
            console.print(turn_table(records, width=console.width))
            ids = short_ids([record.turn.id for record in records])
            for record, short in zip(records, ids, strict=True):
                answered = any(each.role == "assistant" for each in record.turn.conversation.messages)
                if (why := why_unbound(record)) is not None and (why != BEGINS or answered):
                    unbound.setdefault(why, []).append(short)  # a session may begin, but a parent be missed
    for why, turns in unbound.items():
        console.print(Text(f"{', '.join(turns)}: {why}", style="dim"))
    states = " · ".join(f"{state.value} {counts.states.get(state, 0)}" for state in State)
    reasons = ", ".join(f"{reason.value} {number}" for reason, number in sorted(counts.reasons.items()))
    console.print(Text(states + (f"   skipped: {reasons}" if reasons else ""), style="dim"))
    if where.kind is not None:
        console.print(f"only {kind} turns are listed; --kind all lists every turn", style="dim")


def turn_table(records: Sequence[Record], *, width: int) -> Table:
    """One row a turn in `width` columns: time and reward are always whole, state and response may be cut."""
    ids = short_ids([record.turn.id for record in records])
    whens = [moment(record.turn.created, year=False) for record in records]
    table, left = Table(box=None, pad_edge=False, expand=True), width - RESPONSE
    for name, cells in (("turn", ids), ("when", whens), ("reward", []), ("hints", [])):
        table.add_column(name, no_wrap=True)
        left -= max(map(len, (name, *cells))) + GAP
    state = min(STATE if width < WIDE else WIDE_STATE, left - GAP)
    table.add_column("state", no_wrap=True, max_width=state, overflow="ellipsis")
    table.add_column("response", no_wrap=True, ratio=1, overflow="ellipsis")
    for record, short, when in zip(records, ids, whens, strict=True):
        verdict = record.verdict
        table.add_row(
            short,
            when,
            "" if verdict is None else signed(verdict.reward),
            "" if verdict is None else str(len(verdict.hints)),
            _state(record),
            Text(one_line(record.turn.message, width)),
        )
    return table


def short_ids(ids: Sequence[str]) -> list[str]:
    """The beginning of each id, longer where another listed id has the same beginning."""
    short = [each[:ID_CHARS] for each in ids]
    for chars in range(ID_CHARS + 1, max(map(len, ids), default=0) + 1):
        beginnings = Counter(short)
        short = [
            whole[:chars] if beginnings[each] > 1 else each for whole, each in zip(ids, short, strict=True)
        ]
    return short


def _state(record: Record) -> Text:
    words = record.state.value
    if not isinstance(record.turn, Turn):
        words = f"imported {words}"
    if record.turn.kind is not Kind.MAIN:
        words = f"{record.turn.kind.value} {words}"
    if record.reason is not None:
        words += f" ({record.reason.value})"
    elif record.trained_in:
        words += f" in {', '.join(map(str, record.trained_in))}"
    elif record.error is not None:
        words += f", waiting: {record.error}"
    failed = record.reason is not None and record.reason.kind is ReasonClass.FAILED
    return Text(words, style="red" if failed else COLOUR[record.state])


def review_lines(record: Record) -> Iterator[str]:
    """A turn in a few lines for review: its lesson, and why that is doubtful."""
    verdict = record.verdict
    reward = 0 if verdict is None else verdict.reward
    yield f"{record.turn.id}  reward {signed(reward)}  from {record.turn.scope}"
    yield f"  response  {one_line(record.turn.message, WIDTH)}"
    for hint in () if verdict is None else verdict.hints:
        yield f"  hint      {' '.join(hint.split())}"
    for flag in record.flags:
        yield f"  why       {flag.words}"


def review_json(record: Record) -> dict[str, Any]:
    verdict = record.verdict
    return {
        "turn": record.turn.id,
        "session": record.turn.session,
        "source": record.turn.source,
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
        "flags": [flag.value for flag in record.flags],
        "accepted": record.accepted,
    }


def why_unbound(record: Record) -> str | None:
    """Why a turn follows no other or is not counted where it does; None if it has its place."""
    turn = record.turn
    if not isinstance(turn, Turn):
        return None
    if record.superseded_by is not None:
        return SUPERSEDED
    if record.reason in BY_REASON:
        return BY_REASON[record.reason]
    if turn.kind is Kind.PRACTICE:
        return PRACTISES
    begins = turn.parent is None and turn.session == turn.id
    if turn.kind is Kind.SIDE:
        return ASIDE.format(", and which one is not known" if begins else "")
    if turn.parent is not None:
        return None
    return BEGINS if begins else NEW_SEGMENT


def print_turn(home: Path | None, turn: str, *, advantages: bool, config: Path | None) -> None:
    """`afterwit show`: a turn and its outcome.

    With `advantages`, load the models and print what an update computes for each token.
    """
    settings, console = load(home=home, file=config), Terminal()
    with store_of_home(home) as store:
        record = store.turn(turn_named(store, turn))
        groups = store.group_rewards([record.turn.id]) if settings.objective.reads_groups else {}
        for part in (*_parts(record), *became(store, record)):
            console.print(part)
    if not advantages or record.verdict is None or not (record.rl or record.opd):
        return
    with working("loading the model as the learner does") as line:
        rewards = groups.get(record.turn.id, ())
        parts = list(_taught(record, record.verdict, settings, home_of(home), rewards, line))
    for part in parts:
        console.print(part)


def _parts(record: Record) -> Iterator[RenderableType]:
    turn = record.turn
    reason = f" ({record.reason.value})" if record.reason else ""
    head = f"{turn.id}  {record.state.value}{reason} · session {turn.session} · {turn.kind.value}"
    yield Text(head, style="bold")
    if (why := why_unbound(record)) is not None:
        yield Text(f"It {why}.", style="dim")
    sampling = IMPORTED
    if isinstance(turn, Turn):
        versions = ", ".join(map(str, sorted(set(turn.sampled.versions))))
        trained = f" · trained in {', '.join(map(str, record.trained_in))}" if record.trained_in else ""
        sampling = (
            f"sampled by version {versions or '-'} at temperature {turn.sampling.temperature:g}, "
            f"{len(turn.prompt_ids)} prompt and {len(turn.sampled.ids)} response tokens{trained}"
        )
    yield Text(sampling, style="dim")
    messages = turn.conversation.rendered
    if len(messages) > PROMPT_MESSAGES:
        yield Text(f"… {counted(len(messages) - PROMPT_MESSAGES, 'earlier message')}", style="dim")
    for message in messages[-PROMPT_MESSAGES:]:
        yield _panel(message, message.role, "blue")
    yield _panel(turn.message, "response", "bold")
    if record.next_state is not None:
        for message in record.next_state.messages:
            yield _panel(message, f"next state: {message.role}", "magenta")
        if record.next_state.feedback is not None:
            yield from _feedback(record.next_state.feedback)
    elif record.state is State.OPEN:
        before = f" The turn before it: `afterwit show {turn.parent}`." if turn.parent is not None else ""
        unanswered = f"Nothing has followed it yet, so there is nothing to judge it by.{before}"
        yield Text(unanswered, style="dim")
    if record.error is not None:
        yield Text(f"waiting: {record.error}", style="red")
    if record.verdict is not None:
        yield _verdict(record.verdict)


def _feedback(feedback: Feedback) -> Iterator[RenderableType]:
    if feedback.reward is not None:
        yield Text(f"feedback: reward {signed(feedback.reward)}", style="magenta")
    for title in ("text", "hint", "correction"):
        if (words := getattr(feedback, title)) is not None:
            yield Panel(Text(words), title=f"feedback: {title}", title_align="left", border_style="magenta")


def _panel(message: Message, title: str, style: str) -> Panel:
    lines = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    if message.content:
        lines.append(message.content)
    text = "\n".join(lines)
    cut = len(text) - MESSAGE_CHARS
    if cut > 0:
        text = f"… {cut} characters\n{text[-MESSAGE_CHARS:]}"
    return Panel(Text(text), title=title, title_align="left", border_style=style)


def _verdict(verdict: Verdict) -> RenderableType:
    lines = [Text(f"reward {signed(verdict.reward)} by {verdict.source.value}", style="bold")]
    for vote in verdict.votes:
        value = "invalid" if vote.value is None else signed(vote.value)
        why = f" ({vote.rejected})" if vote.rejected else ""
        words = " ".join(vote.words.split())[:300]
        seen = f": {words}" if words else ""
        lines.append(Text(f"{vote.question.value} {value}{why}{seen}", style="dim"))
    whose = "hint, in the person's own words" if verdict.own_words else "hint"
    lines += [Text(f"{whose}: {hint}", style="green") for hint in verdict.hints]
    return Panel(Group(*lines), title="verdict", title_align="left", border_style="yellow")


def _taught(
    record: Record,
    verdict: Verdict,
    settings: Settings,
    home: Path,
    group_rewards: tuple[int, ...],
    line: Working,
) -> Iterator[RenderableType]:
    """The update's values for the turn, computed or recomputed: hint, weights, advantages per token."""
    from afterwit.build import trainer_of
    from afterwit.chat_format.render import Renderer
    from afterwit.home.model import model_folder
    from afterwit.learning.trainer import Explained, explain

    folder = model_folder(settings.model, home)
    sample = JudgedTurn(
        turn=record.sampled_turn,
        verdict=verdict,
        rl=record.rl,
        opd=record.opd,
        group_rewards=group_rewards,
    )
    trained_in = record.trained_in[-1] if record.trained_in else None
    trainer = trainer_of(settings, home, folder)
    line.step("computing what the turn teaches, as an update does; `--no-advantages` leaves it out")
    found = explain(trainer, sample, trained_in)
    if not isinstance(found, Explained):
        yield Text(f"it teaches nothing now: {found.value}", style="dim")
        return
    objective = settings.objective
    how = (
        f"Objective {objective.objective}, teacher {settings.learner.teacher}, {objective.hint_selection} "
        f"hint, K = {objective.ids_kept} ({objective.subset}); by the present settings."
    )
    yield Text(f"{_when(found, trained_in)} {how}", style="dim")
    for index, hint in enumerate(found.hints):
        tokens = sum(chosen == index for chosen in found.chosen)
        yield Text(f"hint of {tokens} of {len(found.chosen)} tokens: {hint}", style="green")
    response, decode = record.sampled_turn.sampled.ids, Renderer.load(folder).decode
    for name, per_token in found.terms.items():
        yield Panel(_coloured(response, per_token, decode), title=f"advantages: {name}", title_align="left")
    yield Text(
        "green: the token is pushed up; red: down. In brackets: the likelier id that gains most, if any.",
        style="dim",
    )


def _when(found: Explained, trained_in: int | None) -> str:
    if trained_in is None:
        return f"What it would teach now, with the weights of version {found.weights}."
    if found.exact:
        return (
            f"What it taught in version {trained_in}, computed again with version {found.weights}'s weights."
        )
    gone = f"The weights that version {trained_in} was made from are gone"
    return f"{gone}: computed with version {found.weights}'s instead."


def _coloured(
    response: Sequence[int], per_token: Sequence[Advantage], decode: Callable[[Sequence[int]], str]
) -> Text:
    text = Text()

    def add(words: str, advantage: float) -> None:
        strength = int(40 + 150 * min(abs(advantage) / STRONG, 1.0))
        colour = f"rgb(0,{strength},0)" if advantage > 0 else f"rgb({strength},0,0)"
        text.append(words, style=f"white on {colour}" if abs(advantage) > SEEN else "")

    for index, token in zip(response, per_token, strict=True):
        values = dict(zip(token.ids, token.values, strict=True))
        own = values.get(index, 0.0)
        add(decode([index]), own)
        best = max(values, key=values.__getitem__)
        if best != index and values[best] > max(own, SEEN):
            add(f"[{decode([best])}]", values[best])
    return text
