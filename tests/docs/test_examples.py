"""Each example package is installed into a folder and used by its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from afterwit import plugins
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Kind
from tests.fakes.models import tiny_qwen3
from tests.store.examples import add

ROOT = Path(__file__).parents[2]
GROUPS = {
    *(plugins.COMMANDS, plugins.DIALECTS, plugins.ENGINES, plugins.HINT_RULES, plugins.JUDGES),
    *(plugins.OBJECTIVES, plugins.STORES, plugins.TERMS),
}
KINDS = sorted(project.parent.name for project in (ROOT / "examples").glob("*/pyproject.toml"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all examples are installed into: their wheels, built by one process and unpacked."""
    folder = tmp_path_factory.mktemp("site")
    sources, wheels = folder / "sources", folder / "wheels"
    shutil.copytree(ROOT / "examples", sources)  # a build leaves files next to them
    code = (
        "import os, sys\nfrom setuptools import build_meta\n"
        "out, *packages = sys.argv[1:]\n"  # a build changes them
        "for package in packages:\n    os.chdir(package)\n    build_meta.build_wheel(out)"
    )
    packages = [str(sources / kind) for kind in KINDS]
    subprocess.run([sys.executable, "-c", code, str(wheels), *packages], check=True, capture_output=True)
    for wheel in wheels.iterdir():
        zipfile.ZipFile(wheel).extractall(folder / "site")
    assert len(list((folder / "site").glob("*.dist-info"))) == len(KINDS)
    return folder / "site"


ANSWERS = """
import contextlib, io, json, sys
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        exec(json.loads(line), {})
    print(json.dumps(said.getvalue()), flush=True)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(site: Path, home: Path) -> Iterator[Callable[[str], str]]:
    """The output of code where the examples are installed: in one process, which imports torch once."""
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(home), "AFTERWIT_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-c", ANSWERS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        reads, writes = process.stdout, process.stdin

        def answer(code: str) -> str:
            print(json.dumps(code), file=writes, flush=True)
            return str(json.loads(reads.readline()))

        yield answer
        writes.close()
    assert process.returncode == 0


def test_every_kind_of_part_has_an_example() -> None:
    assert KINDS == ["command", "dialect", "engine", "hint_rule", "judge", "objective", "store"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_example_names_is_there(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "examples" / kind / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(ROOT / "examples" / kind)
    named = [
        EntryPoint(name, value, group)
        for group, points in project["entry-points"].items()
        for name, value in points.items()
    ]
    assert named
    assert {point.group for point in named} <= GROUPS
    for point in named:
        assert point.load() is not None


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_examples_hint_rule_and_objective_compute_a_loss(run: Callable[[str], str]) -> None:
    code = """
import json, numpy as np
from afterwit.objective import evaluate
rng = np.random.default_rng(0)
logits = lambda: rng.normal(size=(3, 7))
sample = {"logits_current": logits(), "logits_teacher": [logits(), logits()], "ids": [1, 2, 3], "tau": 1.0}
found = evaluate([sample], {"objective": "gap_descent", "hint_selection": "likeliest", "beta": 0})
def logp(x): return x - np.log(np.exp(x).sum(-1, keepdims=True))
at = lambda x: logp(x)[np.arange(3), [1, 2, 3]]
taught = max((at(each) for each in sample["logits_teacher"]), key=lambda row: row.sum())
now = at(sample["logits_current"])
print(json.dumps([found.terms["opd"], float((-(taught - now) * now).mean())]))
"""
    loss, expected = json.loads(run(code))
    assert loss == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_unknown_name_still_lists_what_is_installed(run: Callable[[str], str]) -> None:
    code = """
from afterwit.config import load
from pathlib import Path
try:
    load(home=Path("none"), pairs=["objective.hint_selection=likelyest"], environment={})
except Exception as error:
    print(error)
"""
    assert "likeliest" in run(code)


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_examples_command_is_there_and_counts(run: Callable[[str], str], home: Path) -> None:
    store = SqliteStore.open(home / "store.db", fingerprint=None)
    add(store, "answer")
    add(store, "title", kind=Kind.SIDE)
    store.close()
    code = "from afterwit.cli.app import main; main(['count', 'turns'])"
    assert run(code).strip() == "1"


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_examples_judge_votes(run: Callable[[str], str]) -> None:
    code = r"""
import asyncio
from afterwit import build
from afterwit.judging.settings import JudgeSettings
from afterwit.turn import Message
client = build.judge_client(JudgeSettings(client="keyword"), None, None)
for text in ("That is wrong.", "Thanks!"):
    asked = client.ask([Message(role="user", content=text)], temperature=1, max_tokens=1, seed=0)
    print(asyncio.run(asked).words)
"""
    assert run(code).split() == [r"\boxed{-1}", r"\boxed{1}"]


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_examples_dialect_has_its_path(run: Callable[[str], str]) -> None:
    code = "from afterwit.dialects.table import served; print(*(each.path for each in served()))"
    assert "/v1/plain" in run(code).split()


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_examples_engine_opens_by_its_kind(run: Callable[[str], str], tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model")
    code = f"""
import asyncio
from pathlib import Path
from afterwit.config import load
from afterwit.engines.kinds import open_engine
settings = load(home=Path("none"), pairs=["engine.kind=small", "engine.context_length=64"], environment={{}})
async def main():
    engine = await open_engine(Path({str(model)!r}), settings.engine)
    print(engine.facts.context_length)
    await engine.close()
asyncio.run(main())
"""
    assert run(code).split()[-1] == "64"


@pytest.mark.slow  # packages are built, and torch is imported
def test_an_examples_store_opens_by_its_scheme(run: Callable[[str], str]) -> None:
    code = """
from afterwit.store import open_store, store_exists
print(store_exists("shelf:notes"))
open_store("shelf:notes", fingerprint="f", synchronous="NORMAL").close()
print(store_exists("shelf:notes"))
"""
    assert run(code).split() == ["False", "True"]
