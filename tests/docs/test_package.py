"""The built package, installed elsewhere and used from another folder, has all that its commands need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from afterwit.cli.app import EXTRAS

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
COMMANDS = ("serve", "demo", "turns", "show", "train", "versions", "rollback", "requeue", "export", "doctor")


@dataclass(frozen=True)
class Installed:
    """A wheel built from the sdist, unpacked as pip does it, and an empty folder to run from."""

    wheel: Path
    site: Path
    elsewhere: Path

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AFTERWIT_")}
        return kept | {"PYTHONPATH": str(self.site), "AFTERWIT_HOME": str(self.elsewhere / "home")}

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, cwd=self.elsewhere, env=self.environment(), capture_output=True, text=True, check=False
        )

    def afterwit(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "afterwit", *arguments]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("package")
    tree = folder / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in SOURCES:
        shutil.copy(ROOT / name, tree / name)
    with tarfile.open(built("sdist", tree, folder)) as sdist:
        sdist.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    wheel = built("wheel", unpacked, folder)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target"]
    subprocess.run([*pip, str(folder / "site"), str(wheel)], check=True)
    (folder / "elsewhere").mkdir()
    return Installed(wheel=wheel, site=folder / "site", elsewhere=folder / "elsewhere")


def built(kind: str, tree: Path, out: Path) -> Path:
    """An sdist or a wheel of a source tree, made by the build backend that pyproject.toml names."""
    backend = tomllib.loads((tree / "pyproject.toml").read_text())["build-system"]["build-backend"]
    code = f"import {backend} as backend, sys; print(backend.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=tree, capture_output=True, text=True, check=True
    )
    return out / done.stdout.splitlines()[-1]


def test_every_file_of_the_source_tree_is_code_or_named_in_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ((package, patterns),) = project["tool"]["setuptools"]["package-data"].items()
    folder = ROOT / "src" / package
    named = {path for pattern in patterns for path in folder.glob(pattern)}
    files = {path for path in folder.rglob("*.*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files - named if path.suffix != ".py"} == set()
    assert {
        path for path in files if path.suffix == ".py" and not (path.parent / "__init__.py").exists()
    } <= named


@pytest.mark.slow  # a build
def test_the_wheel_holds_every_file_of_the_source_tree(installed: Installed) -> None:
    sources = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "afterwit").rglob("*")}
    wanted = {str(path) for path in sources if path.suffix and not set(path.parts) & {"__pycache__"}}
    held = set(zipfile.ZipFile(installed.wheel).namelist())
    assert {name for name in wanted if (ROOT / "src" / name).is_file()} - held == set()


@pytest.mark.slow  # a build
def test_every_command_explains_itself_from_another_folder(installed: Installed) -> None:
    asks = [[], *([command] for command in COMMANDS), ["keys"], ["keys", "add"]]
    code = (
        "import afterwit, sys\nfrom afterwit.cli.app import app\n"
        f"for ask in {asks!r}:\n    app([*ask, '--help'], standalone_mode=False)\n"
        "print(afterwit.__file__)"
    )
    ended = installed.run([sys.executable, "-c", code])
    assert ended.returncode == 0, ended.stderr
    assert Path(ended.stdout.splitlines()[-1]).is_relative_to(installed.site)
    assert ended.stdout.count("Usage:") == len(asks)


@pytest.mark.slow  # a build
def test_the_command_of_the_package_is_called_as_the_package(installed: Installed) -> None:
    """So that `uvx` and `pipx` find it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] in project["scripts"]
    ended = installed.run([str(installed.site / "bin" / "afterwit"), "--version"])
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow  # a build
def test_every_recipe_is_read_from_another_folder(installed: Installed) -> None:
    code = (
        "from pathlib import Path\nfrom afterwit import recipes\nfrom afterwit.config import load\n"
        "for name in recipes.every():\n    load(home=Path('none'), recipe=name)\n"
        "print(*recipes.every())"
    )
    ended = installed.run([sys.executable, "-c", code])
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [
        name
        for folder in ("recipes", "recipes/machines")
        for name in sorted(path.stem for path in (ROOT / "src/afterwit" / folder).glob("*.toml"))
    ]


@pytest.mark.slow  # a process that serves
def test_a_demo_model_is_served_under_a_recipe_from_another_folder(installed: Installed) -> None:
    model = installed.site / "afterwit" / "demo" / "tools" / "model"
    serve = installed.afterwit(
        "serve", str(model), "--recipe", "topk-select", "--stages", "gateway", "--port", "0"
    )
    with subprocess.Popen(
        serve, cwd=installed.elsewhere, env=installed.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if "point an agent at" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, said
    assert any("point an agent at" in line for line in said), said


def test_the_extras_that_messages_name_are_the_extras_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra: {_module(each) for each in project[extra] if "afterwit" not in each} for extra in EXTRAS}
    assert named == EXTRAS


def _module(requirement: str) -> str:
    """The module that a requirement installs."""
    name = requirement.split(">")[0].split("[")[0]
    others = {
        "mlflow-skinny": "mlflow",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter",
    }
    return others.get(name, name.replace("-", "_"))


def test_every_package_that_is_asked_for_has_a_tested_version() -> None:
    """Without one, pip may search for hours or find another set tomorrow. torch is chosen by the Makefile."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    fixed: dict[str, list[SpecifierSet]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.lstrip().startswith("#"):
            one = Requirement(line)
            fixed.setdefault(canonicalize_name(one.name), []).append(one.specifier)
    for requirement in map(Requirement, asked):
        if (name := canonicalize_name(requirement.name)) in ("afterwit", "torch"):
            continue
        versions = [exact.version for specifier in fixed.get(name, []) for exact in specifier]
        assert versions, f"{name} is not in constraints.txt: run `make constraints`"
        assert all(map(requirement.specifier.contains, versions)), f"{requirement} against {versions}"
