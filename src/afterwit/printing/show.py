"""Prints one turn for a person: prompt, response, next state, verdict, and what the update computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from afterwit.config import Settings
from afterwit.lifecycle import State
from afterwit.message import Message
from afterwit.printing.terminal import Terminal
from afterwit.printing.unbound import why_unbound
from afterwit.store import Record
from afterwit.turn import Turn
from afterwit.verdict import Verdict, Vote

if TYPE_CHECKING:
    from afterwit.chat_format.render import Renderer
    from afterwit.learning.explain import Advantage, Explained

IMPORTED = "imported: recorded elsewhere, so its tokens and log-probs are not known and it cannot train"

PROMPT_MESSAGES = 3

MESSAGE_CHARS = 1200

STRONG = 1.0
"""The advantage at which a token's colour is brightest."""

SEEN = 0.02
"""The advantage from which on a token is coloured."""


def show_turn(
    record: Record,
    settings: Settings,
    home: Path,
    *,
    advantages: bool,
    group_rewards: tuple[int, ...],
    became: Sequence[Text],
) -> None:
    """Print a turn, and what `became` of it.

    With `advantages`, load the models and print what an update computes for each token.
    """
    console = Terminal()
    for part in (*_parts(record), *became):
        console.print(part)
    if not advantages or record.verdict is None or not (record.rl or record.opd):
        return
    with console.status("computing what the turn teaches, as an update does"):
        parts = list(_taught(record, record.verdict, settings, home, group_rewards))
    for part in parts:
        console.print(part)


def _parts(record: Record) -> Iterator[RenderableType]:
    turn = record.turn
    reason = f" ({record.reason.value})" if record.reason else ""
    head = f"{turn.id}  {record.state.value}{reason} · session {turn.session} · {turn.kind.value}"
    yield Text(head, style="bold")
    if (why := why_unbound(record)) is not None:
        yield Text(f"It {why}.", style="dim")
    yield Text(_sampling(turn, record.trained_in) if isinstance(turn, Turn) else IMPORTED, style="dim")
    messages = turn.conversation.messages
    if len(messages) > PROMPT_MESSAGES:
        yield Text(f"… {len(messages) - PROMPT_MESSAGES} earlier messages", style="dim")
    for message in messages[-PROMPT_MESSAGES:]:
        yield _panel(message, message.role, "blue")
    yield _panel(turn.message, "response", "bold")
    if record.next_state is not None:
        for message in record.next_state.messages:
            yield _panel(message, f"next state: {message.role}", "magenta")
        if record.next_state.feedback is not None:
            yield Text(f"feedback: {record.next_state.feedback}", style="magenta")
    elif record.state is State.OPEN:
        yield Text(_unanswered(turn.parent), style="dim")
    if record.error is not None:
        yield Text(f"waiting: {record.error}", style="red")
    if record.verdict is not None:
        yield _verdict(record.verdict)


def _sampling(turn: Turn, trained_in: Sequence[int]) -> str:
    versions = ", ".join(map(str, sorted(set(turn.sampled.versions))))
    trained = f" · trained in {', '.join(map(str, trained_in))}" if trained_in else ""
    return (
        f"sampled by version {versions or '-'} at temperature {turn.sampling.temperature:g}, "
        f"{len(turn.prompt_ids)} prompt and {len(turn.sampled.ids)} response tokens{trained}"
    )


def _unanswered(parent: str | None) -> str:
    before = f" The turn before it: `afterwit show {parent}`." if parent is not None else ""
    return f"Nothing has followed it yet, so there is nothing to judge it by.{before}"


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
    lines = [Text(f"reward {verdict.reward:+d} by {verdict.source.value}", style="bold")]
    lines += [_vote(vote) for vote in verdict.votes]
    whose = "hint, in the person's own words" if verdict.own_words else "hint"
    lines += [Text(f"{whose}: {hint}", style="green") for hint in verdict.hints]
    return Panel(Group(*lines), title="verdict", title_align="left", border_style="yellow")


def _vote(vote: Vote) -> Text:
    value = "invalid" if vote.value is None else f"{vote.value:+d}"
    why = f" ({vote.rejected})" if vote.rejected else ""
    return Text(f"{vote.question.value} {value}{why}: {' '.join(vote.words.split())[:300]}", style="dim")


def _taught(
    record: Record, verdict: Verdict, settings: Settings, home: Path, group_rewards: tuple[int, ...]
) -> Iterator[RenderableType]:
    """What the update computed for the turn, or would compute: hint, weights, advantages per token."""
    from afterwit import build
    from afterwit.chat_format.render import Renderer
    from afterwit.home.model import model_folder
    from afterwit.learning.explain import Explained, explain
    from afterwit.turn import JudgedTurn

    folder = model_folder(settings.model, home)
    trainer, renderer = build.trainer_of(settings, home, folder), Renderer.load(folder)
    sample = JudgedTurn(
        turn=record.sampled_turn,
        verdict=verdict,
        rl=record.rl,
        opd=record.opd,
        group_rewards=group_rewards,
    )
    trained_in = record.trained_in[-1] if record.trained_in else None
    found = explain(trainer, sample, trained_in)
    if not isinstance(found, Explained):
        yield Text(f"it teaches nothing now: {found.value}", style="dim")
        return
    yield Text(_origin(found, trained_in, settings), style="dim")
    for index, hint in enumerate(found.hints):
        tokens = sum(chosen == index for chosen in found.chosen)
        yield Text(f"hint of {tokens} of {len(found.chosen)} tokens: {hint}", style="green")
    response = record.sampled_turn.sampled.ids
    for name, per_token in found.terms.items():
        yield Panel(_coloured(response, per_token, renderer), title=f"advantages: {name}", title_align="left")
    yield Text(
        "green: the token is pushed up; red: down. In brackets: the likelier id that gains most, if any.",
        style="dim",
    )


def _origin(found: Explained, trained_in: int | None, settings: Settings) -> str:
    """The weights and settings behind the numbers below."""
    objective, teacher = settings.objective, settings.learner.teacher
    if trained_in is None:
        when = f"What it would teach now, with the weights of version {found.weights}."
    elif found.exact:
        when = (
            f"What it taught in version {trained_in}, computed again with version {found.weights}'s weights."
        )
    else:
        when = (
            f"The weights that version {trained_in} was made from are gone: computed with version"
            f" {found.weights}'s instead."
        )
    how = f"Objective {objective.objective}, teacher {teacher}, {objective.hint_selection} hint"
    return f"{when} {how}, K = {objective.ids_kept} ({objective.subset}); by the present settings."


def _coloured(response: Sequence[int], per_token: Sequence[Advantage], renderer: Renderer) -> Text:
    text = Text()
    for index, token in zip(response, per_token, strict=True):
        values = dict(zip(token.ids, token.values, strict=True))
        own = values.get(index, 0.0)
        text.append(renderer.decode([index]), style=_style(own))
        best = max(values, key=values.__getitem__)
        if best != index and values[best] > max(own, SEEN):
            text.append(f"[{renderer.decode([best])}]", style=_style(values[best]))
    return text


def _style(advantage: float) -> str:
    if abs(advantage) <= SEEN:
        return ""
    strength = int(40 + 150 * min(abs(advantage) / STRONG, 1.0))
    return "white on " + (f"rgb(0,{strength},0)" if advantage > 0 else f"rgb({strength},0,0)")
