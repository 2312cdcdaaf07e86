"""A part of a package that cannot be used: one line names the package, and nothing else fails."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from afterwit.build import judge_client, judge_stage, trainer_of
from afterwit.config import Settings, load, settings_class
from afterwit.doctor.machine import check_machine, check_packages
from afterwit.engines.kinds import open_engine
from afterwit.errors import SettingError
from afterwit.judging.verdicts import InTime
from afterwit.planning.gpus import named_gpus
from afterwit.planning.plan import models_of, plan
from afterwit.plugins import Table
from afterwit.running import up
from afterwit.store import open_store
from tests.fakes.models import tiny_qwen3


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


@pytest.fixture
def _settings_as_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The class of the settings is made of what is in this folder too."""
    monkeypatch.syspath_prepend(tmp_path)
    settings_class.cache_clear()
    yield
    settings_class.cache_clear()


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(SettingError) as error:
        act()
    return str(error.value)


@pytest.mark.usefixtures("_settings_as_installed")
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
    for name, made in (
        ("mute", "'words'"),
        ("built", "type('Judge', (), {'ask': None})"),
        ("poor", "{}['KEY']"),
    ):
        package(tmp_path, name, f"PART = lambda settings: {made}", f"afterwit.judges {name}")

    def loaded(*pairs: str) -> Settings:
        return load(home=tmp_path / "none", pairs=pairs, environment={})

    assert loaded().learner.lr != 9
    for group, pair in (
        ("engines", "engine.kind=broken"),
        ("settings", "broken.number=1"),
        ("hint_rules", "objective.hint_selection=broken"),
    ):
        why = "but fails to load: update or uninstall it: ZeroDivisionError: division by zero"
        said = f"broken provides broken (afterwit.{group}) {why}"
        assert refusal(lambda pair=pair: loaded(pair).objective.hint_rule) == said  # type: ignore[misc]
    unknown = loaded("objective.objective=lost")
    assert refusal(lambda: trainer_of(unknown, tmp_path, tmp_path)) == (
        "the objective lost has an unknown term, nowhere"
    )
    for client, why in (
        ("mute", "is no object with ask(): 'words'"),
        ("built", "is no object with ask(): <class 'built_of_test.Judge'>"),
        ("poor", "failed: KeyError: 'KEY'"),
    ):
        judge = loaded(f"judge.client={client}").judge
        assert refusal(lambda judge=judge: judge_client(judge, None, None)) == f"the judge {client} {why}"  # type: ignore[misc]
    examined_of = {}
    for client, model in (("program", "a"), ("large", "a"), ("large", "b")):
        settings = loaded(f"judge.client={client}", f"judge.model={model}")
        _, limited, examiner = judge_stage(settings, None, None, None)  # type: ignore[arg-type]
        assert isinstance(limited, InTime)
        examined = examiner and examiner.examination
        examined_of[client, model] = examined and (examined.name, examined.examined_as.split()[:2])
    assert examined_of == {
        ("program", "a"): None,
        ("large", "a"): ("The judge large", ["large", "a"]),
        ("large", "b"): ("The judge large", ["large", "b"]),
    }
    findings = {finding.name: finding.ok for finding in check_packages()}
    for group in ("dialects", "engines", "hint_rules", "settings"):
        assert findings[f"broken (afterwit.{group})"] is False
    assert findings["learner (afterwit.settings)"] is False


ENGINE = """
from dataclasses import dataclass
from typing import Literal
from afterwit.api.serving import EngineKind

@dataclass(frozen=True)
class Own:
    kind: Literal["own"] = "own"

async def opened(*_):
    return type("Mute", (), dict.fromkeys(("facts", "generate")))()

PART = EngineKind(settings=Own, open=opened)
"""


@pytest.mark.usefixtures("_settings_as_installed")
def test_an_engine_of_a_package_has_no_server_to_test_count_or_start(tmp_path: Path) -> None:
    package(tmp_path, "own", ENGINE, "afterwit.engines own")
    settings = load(home=tmp_path / "none", pairs=["engine.kind=own"], environment={})
    model = tiny_qwen3(tmp_path / "model")
    findings = {finding.name: finding for finding in check_machine(settings, tmp_path / "home", model)}
    assert findings["device"].seen.startswith("the engine own chooses its own, the learner on ")
    models = models_of(settings.model_copy(update={"model": str(model)}), tmp_path)
    assert refusal(lambda: plan(settings, models, named_gpus("80GB", 1))) == (
        "engine.kind is 'own', whose memory only its package can count"
    )
    assert refusal(lambda: up.run(settings, tmp_path / "home")).startswith(
        "engine.kind is 'own', which starts no server: choose one of vllm, sglang, llama_cpp, or "
    )
    assert refusal(lambda: asyncio.run(open_engine(model, settings.engine))).startswith(
        "the engine own lacks capabilities, version, live, score, fault, reduced, stage, probe, "
    )


def test_a_store_of_a_package_that_opens_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "PART = type('Shelf', (), dict.fromkeys(('open', 'exists'), lambda *_, **__: None))()"
    package(tmp_path, "empty", kind, "afterwit.stores empty")
    monkeypatch.syspath_prepend(tmp_path)
    assert refusal(lambda: open_store("empty:x", fingerprint=None, synchronous="NORMAL")) == (
        "store.url: empty opened no Store, but NoneType"
    )
