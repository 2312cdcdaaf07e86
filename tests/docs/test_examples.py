"""Each example package is installed into a folder and used by its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from afterwit.store.sqlite import SqliteStore
from tests.fakes.models import tiny_qwen3

ROOT = Path(__file__).parents[2]
KINDS = sorted(project.parent.name for project in (ROOT / "examples").glob("*/pyproject.toml"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all examples are installed into."""
    folder = tmp_path_factory.mktemp("site")
    sources = folder / "sources"
    shutil.copytree(ROOT / "examples", sources)  # a build leaves files next to them
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    packages = [str(sources / kind) for kind in KINDS]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, *packages], check=True)
    return folder / "site"


def run(site: Path, home: Path, code: str) -> str:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(home), "AFTERWIT_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_kind_of_part_has_an_example() -> None:
    assert KINDS == ["command", "dialect", "engine", "hint_rule", "judge", "objective", "store"]


def test_an_examples_hint_rule_and_objective_compute_a_loss(site: Path, tmp_path: Path) -> None:
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
    loss, expected = json.loads(run(site, tmp_path, code))
    assert loss == pytest.approx(expected, rel=1e-12)


def test_an_unknown_name_still_lists_what_is_installed(site: Path, tmp_path: Path) -> None:
    code = """
from afterwit.config import load
from pathlib import Path
try:
    load(home=Path("none"), pairs=["objective.hint_selection=likelyest"], environment={})
except Exception as error:
    print(error)
"""
    assert "likeliest" in run(site, tmp_path, code)


def test_an_examples_command_is_there_and_counts(site: Path, tmp_path: Path) -> None:
    SqliteStore.open(tmp_path / "store.db", fingerprint=None).close()
    code = "from afterwit.cli.app import main; main(['count', 'turns'])"
    assert run(site, tmp_path, code).strip() == "0"


def test_an_examples_judge_votes(site: Path, tmp_path: Path) -> None:
    code = r"""
import asyncio
from afterwit import build
from afterwit.judging.settings import JudgeSettings
from afterwit.message import Message
client = build.judge_client(JudgeSettings(client="keyword"), None, None)
for text in ("That is wrong.", "Thanks!"):
    asked = client.ask([Message(role="user", content=text)], temperature=1, max_tokens=1, seed=0)
    print(asyncio.run(asked).words)
"""
    assert run(site, tmp_path, code).split() == [r"\boxed{-1}", r"\boxed{1}"]


def test_an_examples_dialect_has_its_path(site: Path, tmp_path: Path) -> None:
    code = "from afterwit.dialects.table import DIALECTS; print(*(each.path for each in DIALECTS))"
    assert "/v1/plain" in run(site, tmp_path, code).split()


def test_an_examples_engine_opens_by_its_kind(site: Path, tmp_path: Path) -> None:
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
    assert run(site, tmp_path, code).split()[-1] == "64"


def test_an_examples_store_opens_by_its_scheme(site: Path, tmp_path: Path) -> None:
    code = """
from afterwit.store.open import open_store, store_exists
print(store_exists("shelf:notes"))
open_store("shelf:notes", fingerprint="f", synchronous="NORMAL").close()
print(store_exists("shelf:notes"))
"""
    assert run(site, tmp_path, code).split() == ["False", "True"]
