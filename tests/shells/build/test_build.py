"""One module constructs the parts of the running system, and it is the only one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import afterwit

SRC = Path(afterwit.__file__).parent
ONLY_PLACE = SRC / "build.py"
BUILT = {
    "AsyncStore",
    "open_engine",
    "EngineJudge",
    "HttpJudge",
    "Judge",
    "Learn",
    "Publisher",
    "Trackers",
    "Trainer",
    "Versions",
    "GatewayApp",
    "open_store",
}
OF_ITS_OWN = {"forgetting.py": {"Versions"}}
"""Progress of forgetting is kept as a version in a folder of its own, which nothing else opens."""


def calls(path: Path) -> Iterator[str]:
    """Each part that a file calls by name and does not define."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text))) if any(f"{name}(" in text for name in BUILT) else []
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in defined:
            yield node.func.id


def test_build_constructs_every_part() -> None:
    assert set(calls(ONLY_PLACE)) >= BUILT


def test_no_other_file_constructs_one() -> None:
    others = {path: BUILT & set(calls(path)) for path in SRC.rglob("*.py") if path != ONLY_PLACE}
    assert {path.name: names for path, names in others.items() if names} == OF_ITS_OWN
