"""docs/benchmarks.md's table and picture, from a kept JSON.

`python -m benchmarks.page [RESULTS]`: the questions of fresh RESULTS first replace the kept ones in
docs/data/benchmarks.json; the page names the commit of each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.__main__ import QUESTIONS
from benchmarks.measure import Row
from benchmarks.picture import draw, drawn
from benchmarks.results import keep, read

DOCS = Path(__file__).parent.parent / "docs"
KEPT, PAGE, PICTURE = DOCS / "data" / "benchmarks.json", DOCS / "benchmarks.md", DOCS / "benchmarks.svg"
THROWN = re.compile(r"(\d+) of (\d+) runs thrown away(?:; )?")
BEGIN, END = "<!-- measured: python -m benchmarks.page -->", "<!-- /measured -->"


def main() -> None:
    if len(sys.argv) > 1:
        keep(Path(sys.argv[1]), KEPT)
    facts, questions = read(KEPT)
    rows = [row for name in sorted(questions, key=_place) for row in questions[name]]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    measured = "\n".join(_measured(facts, rows))
    PAGE.write_text(f"{before}{BEGIN}\n{measured}\n{END}{after}")
    draw(rows, PICTURE)


def _measured(facts: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    machine = facts["machine"]
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("torch", "transformers", "trl") if name in machine
    )
    yield f"{_commits(facts)}; {machine['cpu']}, {machine['cores']} cores, one thread; {versions}."
    rows = [row for row in rows if row.target is not None or row.peer]
    thrown = [tuple(map(int, counts)) for row in rows for counts in THROWN.findall(row.note)]
    worst, tried = max(thrown, key=lambda counts: counts[0] / counts[1])
    yield f"Noisy runs were thrown away in {len(thrown)} of {len(rows)} rows, at most {worst} of {tried}."
    yield "\n![Rows as multiples of their targets, and an update's time and memory](benchmarks.svg)\n"
    yield "| row | what | median (min to max) | target | remarks |"
    yield "| --- | --- | --- | --- | --- |"
    for row, after in pairwise([*rows, rows[-1]]):
        if not drawn(row) or row.verdict == "MISS" or after.what.startswith("the same"):
            yield _line(row)


def _commits(facts: Mapping[str, Any]) -> str:
    later = [f"{name}'s `{_short(commit)}`" for name, commit in facts.get("later", {}).items()]
    return f"Commit `{_short(facts['commit'])}`" + (f", but {', '.join(later)}" if later else "")


def _short(commit: str) -> str:
    """Ten digits, and the mark of a working tree that differs."""
    return commit[:10] + "+" * commit.endswith("+")


def _place(question: str) -> int:
    return QUESTIONS.index(question)


def _line(row: Row) -> str:
    target = "" if row.target is None else str(row.target)
    target += ", **missed**" if row.verdict == "MISS" else ""
    cells = (row.id, row.what, row.figures, target, THROWN.sub("", row.remark).strip("; "))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
