"""`init`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import (
    booleans,
    characters,
    dictionaries,
    floats,
    integers,
    lists,
    recursive,
    text,
)
from typer.testing import CliRunner

from afterwit import demo
from afterwit.build import store_of_home
from afterwit.cli.app import app
from afterwit.config import Settings, load
from afterwit.doctor.machine import check_machine
from afterwit.errors import SettingError
from afterwit.home.home import config_text, make_home, write_config

run = CliRunner()


DEMO = Path(demo.__file__).parent / "chat" / "model"
"""It judges replies, which doctor tests; the model of the tools world judges calls alone."""
FOR_THE_DEMO = {"AFTERWIT_JUDGE__PROMPTS": "short", "AFTERWIT_SERVE__PORT": "0"}


@pytest.mark.slow
def test_flags_alone_set_up_a_home_that_doctor_finds_well(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ["init", str(DEMO), "--key", "laptop", "--home", str(home)]
    done = run.invoke(app, words, env=FOR_THE_DEMO, catch_exceptions=False)
    assert "all is well" in done.stdout
    assert "next: `afterwit serve`" in done.stdout
    assert "aw-" in done.stdout
    assert load(home=home).model == str(DEMO)
    with store_of_home(home) as store:
        assert [key.name for key in store.keys()] == ["laptop"]  # noqa: SIM118 - API keys
    again = run.invoke(app, words)
    assert "config.toml exists already: edit it" in str(again.exception)


@pytest.mark.slow
def test_a_fault_is_said_and_the_settings_stay_to_be_mended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    done = run.invoke(app, ["init", str(DEMO), "--home", str(home)], env=FOR_THE_DEMO)
    assert done.exit_code == 1
    assert "chmod 700" in done.stdout
    assert "then run `afterwit doctor`" in done.stderr
    assert (home / "config.toml").exists()


def test_nothing_is_asked_where_nobody_can_answer(tmp_path: Path) -> None:
    done = run.invoke(app, ["init", "--home", str(tmp_path)])
    assert "no model: name a Hugging Face folder" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_other_machines_are_let_in_by_a_key_only(tmp_path: Path) -> None:
    done = run.invoke(app, ["init", "a/b", "--host", "0.0.0.0", "--home", str(tmp_path)])
    assert "name an API key too, --key NAME" in str(done.exception)


def test_an_answer_that_no_setting_takes_writes_nothing(tmp_path: Path) -> None:
    done = run.invoke(app, ["init", "a/b", "--engine", "vlm", "--home", str(tmp_path)])
    assert "did you mean vllm?" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there_writes_nothing(tmp_path: Path) -> None:
    done = run.invoke(app, ["init", "/nowhere/model", "--home", str(tmp_path)])
    assert "there is no model at /nowhere/model" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_key_that_cannot_be_named_so_writes_nothing(tmp_path: Path) -> None:
    done = run.invoke(app, ["init", str(DEMO), "--key", " laptop", "--home", str(tmp_path)])
    assert "a key cannot be named" in str(done.exception)
    assert not list(tmp_path.iterdir())


VALUES = recursive(
    booleans() | integers() | floats(allow_nan=False) | text(characters(exclude_categories=["Cs"])),
    lambda values: lists(values) | dictionaries(text(characters(exclude_categories=["Cs"])), values),
    max_leaves=8,
)


@given(VALUES)
def test_every_value_is_read_as_it_was_written(value: object) -> None:
    assert tomllib.loads(config_text({"judge.model": value, "judge.url": None})) == {
        "judge": {"model": value}
    }


def test_only_what_differs_from_the_defaults_is_written(tmp_path: Path) -> None:
    model, plain, there = (tmp_path / name for name in ("model", "plain", "there"))
    model.mkdir()
    for name in ("config.json", "model.safetensors"):  # a folder that `doctor` soon finds at fault
        (model / name).touch()
    run.invoke(app, ["init", str(model), "--home", str(plain)])
    assert (plain / "config.toml").read_text() == f'model = "{model}"\n'
    flags = ["--engine", "sglang", "--engine-url", "http://gpu:30000", "--host", "0.0.0.0", "--key", "k"]
    run.invoke(app, ["init", str(model), *flags, "--record-only", "--home", str(there)])
    assert (there / "config.toml").stat().st_mode & 0o077 == 0
    read = load(home=there)
    assert (read.serve.host, read.engine.kind, read.learner.enabled) == ("0.0.0.0", "sglang", False)
    with pytest.raises(SettingError, match="cannot be written"):
        write_config(there, {"model": "a/b"})


def test_code_that_torch_compiles_is_where_no_other_user_writes(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    make_home(tmp_path / "home", environment)
    make_home(tmp_path / "other", environment)
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "home" / "compiled")
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0


def test_a_home_that_others_can_read_is_a_fault_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (finding,) = [
        each for each in check_machine(Settings(), tmp_path / "home", tmp_path) if each.name == "home"
    ]
    assert (finding.ok, finding.seen) == (False, f"{tmp_path}/home can be read by others")
    assert (
        finding.remedy == f"chmod 700 {tmp_path}/home, or choose another folder with --home or AFTERWIT_HOME"
    )
