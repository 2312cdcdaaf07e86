"""The results as JSON: the rows, with their commit and machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.asked import Asked
from benchmarks.measure import Row, Target

LIBRARIES = ("torch", "transformers", "trl", "liger-kernel")


def write(out: Path, found: Mapping[str, Sequence[Row]], asked: Asked) -> None:
    """Rows of other questions stay in the file if this very commit found them, in however many runs."""
    how = {name: value for name, value in asdict(asked).items() if name != "runs"}
    result = {"commit": _commit(), "machine": machine(), "asked": how}
    kept = json.loads(out.read_text()) if out.exists() else {}
    same = all(kept.get(name) == value for name, value in result.items())
    questions = {name: [_plain(row) for row in rows] for name, rows in found.items()}
    result["questions"] = (kept["questions"] if same else {}) | questions
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


def keep(fresh: Path, kept: Path) -> None:
    """Put fresh results in the place of kept ones; questions that were not asked again stay.

    `later` names the commit of each question that is not of the kept results' own.
    """
    new = json.loads(fresh.read_text())
    old = json.loads(kept.read_text()) if kept.exists() else {"questions": {}}
    if old["questions"].keys() - new["questions"].keys():
        asked = old.get("later", {}) | dict.fromkeys(new["questions"], new["commit"])
        later = {name: commit for name, commit in asked.items() if commit != old["commit"]}
        new = old | {"later": later, "questions": old["questions"] | new["questions"]}
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(new, indent=1) + "\n")


def read(path: Path) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Read a file of `write`: everything but the rows, and the rows by question."""
    result = json.loads(path.read_text())
    questions = result.pop("questions")
    return result, {name: [_row(row) for row in rows] for name, rows in questions.items()}


def machine() -> dict[str, str]:
    facts = {"platform": platform.platform(), "cpu": _cpu(), "cores": str(os.cpu_count())}
    facts["python"] = platform.python_version()
    for name in LIBRARIES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts


def _plain(row: Row) -> dict[str, Any]:
    return asdict(row) | {"verdict": row.verdict}


def _row(plain: dict[str, Any]) -> Row:
    named = {name: value for name, value in plain.items() if name != "verdict"}
    target = None if named["target"] is None else Target(**named["target"])
    return Row(**named | {"values": tuple(named["values"]), "target": target})


def _commit() -> str:
    """`+` marks a working tree that differs from it."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return _git("rev-parse", "HEAD") + ("+" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    said = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in said if line.startswith("model name")]
    return named[0] if named else platform.processor()
