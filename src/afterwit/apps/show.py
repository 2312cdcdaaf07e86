"""One turn for a person: what was asked, what was answered, what followed, and what hindsight makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from afterwit.apps.config import Settings
from afterwit.core.message import Message
from afterwit.core.turn import Basis, scoring_temperature
from afterwit.core.verdict import Verdict, Vote
from afterwit.store import Record

PROMPT_MESSAGES = 3
MESSAGE_CHARS = 1200
STRONG = 1.0
"""Nats at which a token's colour is brightest."""


def show_turn(record: Record, settings: Settings, home: Path, *, advantages: bool) -> None:
    """Print a turn; with `advantages`, load the teacher and colour each token by what it thinks of it."""
    console = Console()
    for part in _parts(record):
        console.print(part)
    if not advantages or record.verdict is None or not record.verdict.hints:
        return
    with console.status("scoring the response with each hint"):
        scored = list(_scored(record, settings, home))
    for hint, tokens in scored:
        console.print(Panel(_coloured(tokens), title=f"with the hint: {hint[:90]}", title_align="left"))
    if scored:
        console.print(
            Text(
                "green: the teacher, shown the hint, finds the token likelier; red: less likely", style="dim"
            )
        )


def _parts(record: Record) -> Iterator[RenderableType]:
    turn = record.turn
    reason = f" ({record.reason.value})" if record.reason else ""
    versions = ", ".join(map(str, sorted(set(turn.sampled.versions))))
    trained = f" · trained in {', '.join(map(str, record.trained_in))}" if record.trained_in else ""
    head = f"{turn.id}  {record.state.value}{reason} · session {turn.session} · {turn.kind.value}"
    yield Text(head, style="bold")
    sampling = turn.sampling
    yield Text(
        f"sampled by version {versions or '-'} at temperature {sampling.temperature:g}, "
        f"{len(turn.prompt_ids)} prompt and {len(turn.sampled.ids)} response tokens{trained}",
        style="dim",
    )
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
    if record.error is not None:
        yield Text(f"waiting: {record.error}", style="red")
    if record.verdict is not None:
        yield _verdict(record.verdict)


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
    lines += [Text(f"hint: {hint}", style="green") for hint in verdict.hints]
    return Panel(Group(*lines), title="verdict", title_align="left", border_style="yellow")


def _vote(vote: Vote) -> Text:
    value = "invalid" if vote.value is None else f"{vote.value:+d}"
    why = f" ({vote.rejected})" if vote.rejected else ""
    return Text(f"{vote.question.value} {value}{why}: {' '.join(vote.words.split())[:300]}", style="dim")


def _scored(record: Record, settings: Settings, home: Path) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Per hint: each token's text and log pi_T - log pi_b, at the temperature it was sampled at."""
    import torch

    from afterwit.apps.model import model_folder
    from afterwit.learner.batch import hinted_prompts
    from afterwit.learner.parameters.load import device_of, load_model
    from afterwit.learner.scoring.rows import Row
    from afterwit.learner.scoring.score import stream_logits
    from afterwit.wire.model_text.render import Renderer

    assert record.verdict is not None
    turn, folder = record.turn, model_folder(settings.model, home)
    renderer, learner = Renderer.load(folder), settings.learner
    room = learner.max_tokens - len(turn.sampled.ids)
    hinted, _ = hinted_prompts(turn, record.verdict.hints, renderer, settings.judge.placement, room)
    teacher = load_model(folder, dtype=torch.float32, device=device_of(learner.device))
    rows = [Row(prompt=prompt, response=turn.sampled.ids) for _, prompt in hinted]
    tau = scoring_temperature(turn.sampling.temperature) if turn.sampled.basis is Basis.PROCESSED else 1.0
    ids_T = torch.tensor(turn.sampled.ids, device=teacher.device)
    texts = [renderer.decode([index]) for index in turn.sampled.ids]
    for (hint, _), logits_TV in zip(
        hinted, stream_logits(teacher, rows, learner.micro_batch_tokens), strict=True
    ):
        logprobs_T = torch.log_softmax(logits_TV / tau, -1).gather(-1, ids_T[:, None])[:, 0].tolist()
        gaps = [new - old for new, old in zip(logprobs_T, turn.sampled.logprobs, strict=True)]
        yield hint, list(zip(texts, gaps, strict=True))


def _coloured(tokens: Sequence[tuple[str, float]]) -> Text:
    text = Text()
    for token, gap in tokens:
        strength = int(40 + 150 * min(abs(gap) / STRONG, 1.0)) if abs(gap) > 0.02 else 0
        colour = f"rgb(0,{strength},0)" if gap > 0 else f"rgb({strength},0,0)"
        text.append(token, style=f"white on {colour}" if strength else "")
    return text
