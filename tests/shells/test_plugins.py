"""A part of a package that cannot be used: one line names the package, and nothing else fails."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from afterwit.errors import SettingError
from afterwit.plugins import Table


def package(folder: Path, name: str, code: str, *entries: str) -> None:
    """Installs a package of one module into a folder; an entry is "GROUP NAME", and its object is `PART`."""
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    parts = [f"[{group}]\n{part} = {name}_of_test:PART\n" for group, part in map(str.split, entries)]
    (about / "entry_points.txt").write_text("".join(parts))
    (folder / f"{name}_of_test.py").write_text(code)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('one\\ntwo')", "SystemExit: one two"),
        ("OTHER = 1", "AttributeError: module 'faulty_of_test' has no attribute 'PART'"),
        ("PART = 'five'", "TypeError: faulty_of_test:PART is no int"),
        ("PART = -5", "ValueError: math domain error"),
    ],
)
def test_a_part_that_cannot_be_used_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    group = f"afterwit.test.{abs(hash(code))}"
    package(tmp_path, "faulty", code, f"{group} five")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty_of_test", raising=False)
    table = Table(group, int, {"one": 1}, check=lambda name, part: math.sqrt(part))
    with pytest.raises(SettingError) as error:
        table["five"]
    provides = f"faulty provides five ({group}) but fails to load"
    assert str(error.value) == f"{provides}: update or uninstall it: {why}"
    assert table.usable() == {"one": 1}


def test_a_name_that_two_packages_provide_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("east", "west"):
        package(tmp_path, name, "PART = 5", "afterwit.test.two five")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        SettingError, match=r"^east provides five .*, and so does west: uninstall one of them$"
    ):
        Table[int]("afterwit.test.two", int)["five"]


def test_a_name_of_afterwits_own_stays_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "vain", "PART = 5", "afterwit.test.own one")
    monkeypatch.syspath_prepend(tmp_path)
    table = Table("afterwit.test.own", int, {"one": 1})
    assert table["one"] == 1
    with pytest.raises(SettingError, match=r"^vain provides one .*, a name of Afterwit's own"):
        table.loaded("one")


def test_only_a_setting_that_names_a_part_needs_it(tmp_path: Path) -> None:
    groups = [f"afterwit.{group} broken" for group in ("engines", "settings", "dialects", "hint_rules")]
    package(tmp_path, "broken", "1 / 0", *groups)
    package(tmp_path, "vain", "from dataclasses import dataclass\n@dataclass\nclass PART: lr: float = 9.0",
            "afterwit.settings learner")  # fmt: skip
    objective = "from afterwit.api.objective import Objective\nPART = Objective(terms={'opd': 'nowhere'})"
    package(tmp_path, "lost", objective, "afterwit.objectives lost")
    for name, examined in (("program", False), ("large", True)):
        client = f"def PART(settings): return type('Judge', (), {{'ask': None, 'examined': {examined}}})()"
        package(tmp_path, name, client, f"afterwit.judges {name}")
    package(tmp_path, "mute", "PART = lambda settings: object()", "afterwit.judges mute")
    code = """
from pathlib import Path
from afterwit.build import judge_client, judge_stage, trainer_of
from afterwit.config import load
from afterwit.doctor.machine import check_packages
from afterwit.errors import SettingError

def loaded(*pairs):
    return load(home=Path("none"), pairs=pairs, environment={})

assert loaded().learner.lr != 9
for pairs in (["engine.kind=broken"], ["broken.number=1"], ["objective.hint_selection=broken"]):
    try:
        print(loaded(*pairs).objective.hint_rule)
    except SettingError as error:
        print(error)
for build in (
    lambda: trainer_of(loaded("objective.objective=lost"), Path("none"), Path("none")),
    lambda: judge_client(loaded("judge.client=mute").judge, None, None),
):
    try:
        build()
    except SettingError as error:
        print(error)
for client, model in (("program", "a"), ("large", "a"), ("large", "b")):
    settings = loaded(f"judge.client={client}", f"judge.model={model}")
    examiner = judge_stage(settings, None, None, None)[2]
    print(client, examiner and (examiner.name, examiner._judge.split()[:2]), end="; ")
print()
print(*(f"{finding.name} {finding.ok}" for finding in check_packages()))
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    *refusals, lost, mute, examined, doctor = done.stdout.splitlines()
    known = [f"large ('The judge large', ['large', '{model}']); " for model in "ab"]
    assert examined == "".join(["program None; ", *known])
    assert mute == "the judge mute has no ask(): object"
    assert lost == "the objective lost has an unknown term, nowhere"
    groups = ("engines", "settings", "hint_rules")
    why = "but fails to load: update or uninstall it: ZeroDivisionError: division by zero"
    assert refusals == [f"broken provides broken (afterwit.{group}) {why}" for group in groups]
    for group in ("dialects", "engines", "hint_rules", "settings"):
        assert f"broken (afterwit.{group}) False" in doctor
    assert "learner (afterwit.settings) False" in doctor
