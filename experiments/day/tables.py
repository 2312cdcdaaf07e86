"""The load of each part on a day with a given number of turns: the tables of this folder's README.

.venv/bin/python -m experiments.day.tables
"""

from __future__ import annotations

import math
from pathlib import Path

from afterwit.config import Settings, load
from afterwit.planning.memory import ModelShape
from docs.cards import CONFIGS
from experiments.day.learning import Learning
from experiments.day.limits import (
    LATE_S,
    TOKEN_S,
    Speed,
    learner_cards,
    limits,
    pace_of,
    seconds_of,
    version_bytes,
)
from experiments.day.traffic import Day, calls, stored_bytes

PAGE = Path(__file__).parent / "README.md"
BLOCKS = ("days", "limits")
LAPTOP = Speed(operations=1e12, bandwidth=60e9, streams=1)
"""Eight cores in float32: assumed."""
H100, H200 = Speed(), Speed(bandwidth=4.8e12)
DAYS = (
    ("Qwen3-0.6B", "a laptop", LAPTOP, (100,)),
    ("Qwen3-4B", "H100", H100, (1_000, 10_000, 100_000, 1_000_000)),
    ("Qwen3-32B", "H200", H200, (10_000, 100_000, 1_000_000)),
)
HEAD = (
    "model, on",
    "turns a day",
    "requests a second, fullest hour",
    "store a day",
    "responses, judge's calls at one time",
    "`learner.batch`",
    "updates",
    "versions write",
    "cards to serve, judge, learn",
    "card hours",
)
BATCHES = (4, 16, 64, 256, 1024)
LIKE = Day(turns=1_000)


def settings(batch: int = 4) -> Settings:
    """The defaults in bfloat16, with another batch."""
    pairs = ["learner.dtype=bfloat16", "learner.checkpointing=true", f"learner.batch={batch}"]
    return load(home=Path("unused"), pairs=pairs, direct={}, environment={})


def days() -> str:
    """The table of days, in Markdown."""
    rows = [_row(name, card, speed, Day(turns=turns)) for name, card, speed, sizes in DAYS for turns in sizes]
    return "\n".join([f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD), *rows])


def _row(name: str, card: str, speed: Speed, day: Day) -> str:
    shape, judge = ModelShape.of(CONFIGS[name]), settings().judge
    batch, cards, learning = _learner(day, shape, speed)
    seconds = seconds_of(day, shape, shape, judge, speed)
    counts = (
        max(1, math.ceil(seconds.policy * day.peak)),
        max(1, math.ceil(seconds.judge * day.peak)),
        cards,
    )
    busy = seconds.policy * day.peak + seconds.judge * day.peak + busy_share(day, learning)
    together = busy <= 1 and counts == (1, 1, 1)
    updates = len(learning.run(day))
    streams = day.peak * day.said * TOKEN_S
    asked = day.peak * calls(judge) * day.answer * TOKEN_S
    cells = (
        f"{name}, {card}",
        f"{day.turns:,}",
        f"{day.peak:.2g}",
        _bytes(stored_bytes(day, judge) * day.turns),
        f"{max(1, math.ceil(streams)):,}, {math.ceil(asked):,}",
        f"{batch}",
        f"{updates:,.0f}",
        _bytes(updates * version_bytes(shape, settings().learner.lora_rank)),
        f"one, busy {busy:.0%}" if together else ", ".join(map(str, counts)),
        f"{24 if together else 24 * sum(counts):,}",
    )
    return f"| {' | '.join(cells)} |"


def _learner(day: Day, shape: ModelShape, speed: Speed) -> tuple[int, int, Learning]:
    """The smallest batch with which a number of cards keeps up and late replies are not too old, that
    number, and the learner with them."""
    for batch in BATCHES:
        learning = Learning(settings=settings(batch).learner, pace=pace_of(day, shape, speed))
        fresh = learning.settings.max_staleness * batch / LATE_S >= day.peak * day.learned / day.turns
        if fresh and (cards := learner_cards(day, shape, speed, learning)) is not None:
            return batch, cards, learning.at(pace_of(day, shape, speed, cards))
    raise SystemExit(f"no batch of {BATCHES} learns {day.turns} turns a day")


def broken() -> str:
    """The table of what breaks first, in Markdown."""
    shape, defaults = ModelShape.of(CONFIGS["Qwen3-4B"]), settings()
    learning = Learning(settings=defaults.learner, pace=pace_of(LIKE, shape, H100))
    found = limits(LIKE, defaults, shape, shape, learning, H100)
    rows = [f"| {limit.what} | {_round(limit.turns):,} | {limit.then} |" for limit in found]
    return "\n".join(["| what | turns a day | what is done then |", "| --- | --- | --- |", *rows])


def _round(number: int) -> int:
    """Two digits."""
    return int(float(f"{number:.1e}"))


def busy_share(day: Day, learning: Learning) -> float:
    """Of the fullest hour that the learner is at work, in its smallest whole updates."""
    turns = learning.settings.batch
    seconds = learning.pace.seconds(learning.tokens(day, day.peak, turns))
    return day.peak * day.learned / day.turns * seconds / turns


def _bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if number >= size:
            return f"{number / size:.2g} {unit}" if number < 100 * size else f"{number / size:.0f} {unit}"
    return f"{number / 1e6:.0f} MB"


def page(text: str) -> str:
    """The page with the tables in their places."""
    for block, table in zip(BLOCKS, (days(), broken()), strict=True):
        head, _, rest = text.partition(f"<!-- {block} -->")
        text = f"{head}<!-- {block} -->\n{table}\n<!-- /{block} -->{rest.partition(f'<!-- /{block} -->')[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
