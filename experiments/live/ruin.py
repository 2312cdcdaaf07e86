"""`python -m experiments.live.ruin`: a rate that ruins the model, live, with promotion and without it.

Finished runs are kept in DATA, a JSON line each with both halves, and not played again.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from afterwit.demo.command import run as play
from afterwit.demo.live import Measurement
from experiments.study.page import filled

MARK = "ruin, live"
MEASURED = (12, 24, 36, 48, 60)
"""Tasks of people after which the policy is measured."""
RUIN = ("objective.beta=0", "learner.lr=1.2e-3")
"""No pull to the reference, and thrice the rate that the demo's models learn well at."""
UNGUARDED = ("promotion.enabled=false", "judge.pay_repeats=true")
"""No version is held or taken back, and repeated calls earn their votes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One of the two runs."""

    points: tuple[Measurement, ...]
    versions: int
    held: int
    alarms: int
    seconds: float
    """Wall time of the run."""

    @classmethod
    def of(cls, report: str) -> Half:
        """Read a run's report.json."""
        facts = json.loads(report)
        return cls.of_fields(facts | {"points": facts["curve"]})

    @classmethod
    def of_fields(cls, facts: dict[str, Any]) -> Half:
        """Take this class's own fields by name and ignore all others."""
        fields = {field.name: facts[field.name] for field in dataclasses.fields(cls)}
        return cls(**fields | {"points": tuple(Measurement(**point) for point in facts["points"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruin:
    """A seed's run with promotion, and without it."""

    seed: int
    guarded: Half
    unguarded: Half

    def to_line(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Ruin:
        """The inverse of `to_line`."""
        facts = json.loads(line)
        return cls(
            seed=facts["seed"],
            guarded=Half.of_fields(facts["guarded"]),
            unguarded=Half.of_fields(facts["unguarded"]),
        )


def kept(data: Path) -> dict[int, Ruin]:
    """Every finished run by its seed."""
    lines = data.read_text(encoding="utf-8").splitlines() if data.exists() else []
    return {run.seed: run for run in map(Ruin.from_line, lines)}


def table(runs: Sequence[Ruin]) -> str:
    """Preference / task success at each measurement: two rows for each seed."""
    measured = [point.interactions for point in runs[0].guarded.points]
    titles = ["seed", "promotion", *("start" if at == 0 else str(at) for at in measured)]
    rows = [[*titles, "versions", "holds", "alarms"], ["---"] * (len(titles) + 3)]
    for run in sorted(runs, key=lambda run: run.seed):
        for name, half in (("with", run.guarded), ("without", run.unguarded)):
            cells = [f"{point.preference:.2f} / {point.task_success:.2f}" for point in half.points]
            counts = map(str, (half.versions, half.held, half.alarms))
            rows.append([str(run.seed), name, *cells, *counts])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(
    seed: Annotated[list[int], typer.Option(help="A run; may be given again.")] = [0],  # noqa: B006 - Typer's way
    data: Annotated[Path, typer.Option(help="The finished runs.")] = Path("docs/data/ruin.jsonl"),
    page: Annotated[Path, typer.Option(help="The page with the table.")] = Path("docs/safety.md"),
) -> None:
    """Play what is missing, one run after another, and print the table."""
    for number in seed:
        if number not in kept(data):
            run = _played(number)
            with data.open("a", encoding="utf-8") as file:
                file.write(run.to_line())
    found = table(list(kept(data).values()))
    print(found)
    if page.exists():
        page.write_text(filled(page.read_text(encoding="utf-8"), MARK, found), encoding="utf-8")


def _played(seed: int) -> Ruin:
    """Both runs of the demo. The people and their tasks are the same, and the judge is the rules'."""
    with tempfile.TemporaryDirectory(prefix="afterwit-ruin-") as out:
        halves = {}
        for name, off in (("guarded", ()), ("unguarded", UNGUARDED)):
            folder = Path(out) / name
            play(
                "tools",
                out=folder,
                interactions=MEASURED[-1],
                seed=seed,
                judge="rules",
                pairs=(*RUIN, *off),
                measured=MEASURED,
            )
            halves[name] = Half.of((folder / "report.json").read_text(encoding="utf-8"))
    return Ruin(seed=seed, **halves)


if __name__ == "__main__":
    typer.run(main)
