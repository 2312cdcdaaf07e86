"""The runs with poison as a table: what it took from honest learning, and what it gained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from afterwit.demo.people import MEASURE
from experiments.safety.poison import BEGINS, DELETES, ENDS, SEEDS, Case
from experiments.simulation.plan import RunResult

HEAD = (
    f"| seed | case | preference | honest learning loses | no dry run at {BEGINS} | at {ENDS} |"
    " for review: honest | of the poisoner |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
)


def poison_table(results: Sequence[RunResult]) -> str:
    """A row for each case of each seed whose twin was played."""
    return HEAD + "".join(row for seed in SEEDS for row in _rows(_of(results, seed)))


def _of(results: Sequence[RunResult], seed: int) -> Mapping[Case, RunResult]:
    return {
        Case(result.facts["case"]): result
        for result in results
        if "case" in result.facts and result.facts["seed"] == seed
    }


def _rows(runs: Mapping[Case, RunResult]) -> Iterator[str]:
    if Case.TWIN not in runs:
        return
    twin = runs[Case.TWIN].at(ENDS, MEASURE).preference
    for case in Case:
        if (run := runs.get(case)) is None:
            continue
        kept = run.at(ENDS, MEASURE).preference
        cells = [
            str(run.facts["seed"]),
            case.value,
            f"{kept:.2f}",
            "" if case is Case.TWIN else f"{twin - kept:.2f}",
            *(f"{1 - run.at(when, DELETES).preference:.2f}" for when in (BEGINS, ENDS)),
            *(_said((run.review or {}).get(who)) for who in ("honest", "poisoner")),
        ]
        yield "| " + " | ".join(cells) + " |\n"


def _said(found: Sequence[int] | None) -> str:
    return "" if found is None else f"{found[0]} of {found[1]}"
