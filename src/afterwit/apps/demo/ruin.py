"""`afterwit demo --ruin`: a setting that ruins the model, with promotion and without it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from afterwit.apps.demo.asked import Asked
from afterwit.apps.demo.command import run
from afterwit.apps.demo.report import Report, compared, write_compared

INTERACTIONS = 60
MEASURED = (12, 24, 36, 48, 60)
RUIN = ("objective.beta=0", "learner.lr=1.2e-3")
"""No pull to the reference, and thrice the rate that the demo's models learn well at."""
UNGUARDED = ("promotion.enabled=false", "judge.pay_repeats=true")
"""Nothing is held or taken back, and calls that are made again earn their votes."""


def ruin(
    *, world: str, interactions: int | None, seed: int, out: Path, judge: str | None, pairs: Sequence[str]
) -> tuple[Report, Report]:
    """Both reports, promotion's first. They are in `out/guarded` and `out/unguarded`, beside `ruin.html`.

    The people and their tasks are the same. The judge is the rules', so that only the rate is wrong.
    """
    console, reports = Console(), []
    for name, off in (("guarded", ()), ("unguarded", UNGUARDED)):
        console.print(f"[bold]{name}[/bold]: {', '.join((*RUIN, *off, *pairs))}", highlight=False)
        asked = Asked(
            world=world,
            interactions=INTERACTIONS if interactions is None else interactions,
            seed=seed,
            out=out / name,
            judge=judge or "rules",
            pairs=(*RUIN, *off, *pairs),
            measured=MEASURED,
        )
        reports.append(run(asked))
    guarded, unguarded = reports
    write_compared(guarded, unguarded, out / "ruin.html", settings=(*RUIN, *pairs), without=UNGUARDED)
    console.print(compared(guarded, unguarded))
    console.print(f"side by side: {out / 'ruin.html'}", highlight=False)
    return guarded, unguarded
