"""The facts that every engine reports, and how an engine is chosen."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from afterwit.config import load
from afterwit.engines.kinds import KINDS, EngineSettings
from afterwit.engines.port import Engine
from afterwit.errors import SettingError
from afterwit.turn import Basis
from tests.engines.contract.factories import FACTORIES


def test_every_kind_in_the_table_keeps_the_contract() -> None:
    assert set(KINDS) <= set(FACTORIES)


def test_the_section_engine_knows_every_kind_in_the_table() -> None:
    union, *_ = get_args(EngineSettings)
    members = get_args(union)
    assert {get_args(get_type_hints(member)["kind"])[0] for member in members} == set(KINDS)


def test_an_unknown_kind_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="did you mean embedded"):
        load(home=tmp_path, pairs=["engine.kind=embeded"], environment={})


@pytest.mark.slow
def test_port_table_and_facts_need_no_torch() -> None:
    modules = ("port", "kinds", "teacher", "server.fleet", "vllm.server", "sglang.server", "llama_cpp.server")
    imports = ", ".join(f"afterwit.engines.{module}" for module in modules)
    code = f"import sys, {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_facts_describe_the_model_and_cannot_be_changed(engine: Engine) -> None:
    facts = engine.facts
    assert facts.context_length > 0
    assert facts.end_ids
    assert all(0 <= index < facts.vocabulary for index in facts.end_ids)
    assert facts.dtype in ("float32", "bfloat16", "float16")
    assert facts.name
    assert facts.model
    assert facts.fingerprint
    with pytest.raises(FrozenInstanceError):
        facts.dtype = "int8"  # type: ignore[misc]


def test_capabilities_are_stated(engine: Engine) -> None:
    can = engine.capabilities
    assert can.basis in Basis
    assert can.whole_weights or can.adapters, "an engine must take new weights in some form"
    assert can.longest_probe is None or can.longest_probe >= 2
