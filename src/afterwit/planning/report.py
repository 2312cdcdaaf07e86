"""`afterwit plan` as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from afterwit.config import Settings
from afterwit.planning.cards import CPU, Card
from afterwit.planning.memory import WIDTHS, Model, model_of
from afterwit.planning.plan import Models, Part, plan
from afterwit.planning.servers import lines

GB = 1e9


MEMORY = "memory"
"""What the CPU's place is called."""


def report(settings: Settings, home: Path, cards: Sequence[Card], *, given: Sequence[str] = ()) -> str:
    """The whole plan; `given` are the flags that the settings came from. SettingError if it does not fit."""
    models = models_of(settings, home)
    parts = plan(settings, models, cards)
    table = "\n".join(_row(part) for part in parts)
    commands = "\n".join(lines(settings, models, parts, given=given))
    return f"{_head(settings, models.served, cards)}\n\n{table}\n\n{_left(parts, cards)}\n\n{commands}"


def models_of(settings: Settings, home: Path) -> Models:
    """The models that the settings name. SettingError if one cannot be counted."""
    placed, served = settings.placement, model_of(settings.model, home)
    return Models(
        served=served,
        judge=model_of(placed.judge_model, home) if placed.judge_model else served,
        teacher=model_of(placed.teacher_model, home) if placed.teacher_model else served,
        others=tuple(model_of(name, home) for name in sorted(set(settings.learner.checkpoints.values()))),
    )


def _head(settings: Settings, model: Model, cards: Sequence[Card]) -> str:
    shape, learner = model.shape, settings.learner
    trains = f"{_count(shape.adapter(learner.lora_rank))} of an adapter" if learner.lora_rank else "all"
    token = shape.kept_per_token * WIDTHS[model.dtype]
    sizes = sorted({f"{card.size / GB:.0f} GB" for card in cards})
    there = _cards(len(cards)) if cards[0].name != CPU else "The memory"
    return (
        f"{model.name}: {_count(shape.weights)} weights; {trains if learner.enabled else 'none'} train; keys "
        f"and values take {token:,} bytes a token\n"
        f"{there} of {' and '.join(sizes)}. Counted from shapes, not measured"
    )


def _row(part: Part) -> str:
    names = ",".join(dict.fromkeys(_name(card) for card in part.cards))
    what = ", ".join(f"{name} {size / GB:.1f}" for name, size in part.memory.items() if size)
    each = "process" if part.cards[0].name == CPU else "card"
    copies = f"{part.servers} x {_cards(part.over, each)}"
    return f"{part.name:8} on {names:9} {copies:12} {part.needs / GB:6.1f} GB a {each}: {what}"


def _left(parts: Sequence[Part], cards: Sequence[Card]) -> str:
    """What each card has left, cards alike together."""
    left: dict[int, list[str]] = {}
    for card in dict.fromkeys(cards):
        rest = card.size - sum(part.needs * part.cards.count(card) for part in parts)
        left.setdefault(int(rest / GB), []).append(_name(card))
    said = "; ".join(f"{rest} GB of {_these(names)}" for rest, names in left.items())
    return f"left, after a fifth more for what is not counted: {said}"


def _name(card: Card) -> str:
    return card.name or MEMORY


def _these(names: Sequence[str]) -> str:
    return "this machine's memory" if names == [MEMORY] else f"cards {','.join(names)}"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} G" if number >= 1e9 else f"{number / 1e6:.2f} M"


def _cards(number: int, each: str = "card") -> str:
    return f"1 {each}" if number == 1 else f"{number} {each}{'es' if each.endswith('s') else 's'}"
