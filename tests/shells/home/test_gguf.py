"""GGUF files at the commands: named as a model, and written by `merge` and `export`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from afterwit.checkpoints.versions import Versions
from afterwit.cli.app import app, main
from afterwit.engines.model_files import LINK
from afterwit.errors import SettingError
from afterwit.gguf.write import write_model
from afterwit.home.home import remember_model, remembered_model
from afterwit.home.model import model_folder
from afterwit.planning.memory import model_of
from tests.fakes.models import reweighted, tiny_llama, with_tokenizer_of
from tests.shells.home.test_merge import trained

run = CliRunner()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def file(llama: Path, tmp_path: Path) -> Path:
    write_model(llama, tmp_path / "tiny.gguf", "f32", name="tiny")
    return tmp_path / "tiny.gguf"


def tensors(file: Path) -> dict[str, np.ndarray]:
    return {each.name: gguf.dequantize(each.data, each.tensor_type) for each in gguf.GGUFReader(file).tensors}


def test_a_file_is_read_once_into_the_home(file: Path, llama: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = model_folder(str(file), home)
    assert folder.parent == home.resolve() / "gguf"
    before = {path.name: path.lstat().st_mtime_ns for path in folder.iterdir() if path.name != LINK}
    assert (folder / LINK).readlink() == file
    (tmp_path / "other").mkdir()
    elsewhere = Path(shutil.copy(file, tmp_path / "other"))
    assert model_folder(str(elsewhere), home) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name != LINK} == before
    assert (folder / LINK).readlink() == elsewhere, "the file that was named last"
    remember_model(home, folder)
    file.unlink()
    assert model_folder(None, home) == folder
    assert remembered_model(home) == str(folder)
    ours, theirs = (AutoModelForCausalLM.from_pretrained(place) for place in (folder, llama))
    assert all(torch.equal(weight, theirs.state_dict()[name]) for name, weight in ours.state_dict().items())


def test_another_file_of_the_same_name_is_another_model(file: Path, llama: Path, tmp_path: Path) -> None:
    first = model_folder(str(file), tmp_path / "home")
    other = with_tokenizer_of(llama, reweighted(tmp_path / "other", llama, seed=1))
    write_model(other, file, "f32", name="tiny")
    second = model_folder(str(file), tmp_path / "home")
    assert second != first
    assert second.name[: len("tiny-")] == first.name[: len("tiny-")]


def test_a_refused_file_leaves_nothing_in_the_home(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(SettingError, match="is cut short"):
        model_folder(str(file), tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").rglob("*")] == ["gguf"]


def test_without_the_library_the_line_that_installs_it_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model_folder(str(file), tmp_path / "home")
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert model_folder(str(file), tmp_path / "home") == folder  # read before
    with pytest.raises(SystemExit):
        main(["doctor", str(file), "--home", str(tmp_path / "another")])
    assert "this needs gguf: install afterwit with its extra gguf" in capsys.readouterr().err


def test_a_plan_counts_a_file_without_reading_its_weights(file: Path, llama: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    counted = model_of(str(file), home)
    assert counted.shape == model_of(str(llama), home).shape
    assert not counted.here
    assert not home.exists()


@pytest.fixture
def versions(home: Path, llama: Path) -> Versions:
    return trained(home, llama, lora_rank=4)


def test_a_version_becomes_one_file(home: Path, versions: Versions, tmp_path: Path) -> None:
    out, folder = tmp_path / "merged.gguf", tmp_path / "merged"
    said = run.invoke(app, ["merge", str(out), "--gguf", "f32", "--home", str(home)], catch_exceptions=False)
    assert "llama.cpp, Ollama and LM Studio load it" in said.stdout
    run.invoke(app, ["merge", str(folder), "--home", str(home)], catch_exceptions=False)
    write_model(folder, tmp_path / "expected.gguf", "f32", name="merged, version 1")
    assert out.read_bytes() == (tmp_path / "expected.gguf").read_bytes()
    back = AutoModelForCausalLM.from_pretrained(model_folder(str(out), tmp_path / "new"))
    theirs = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert all(torch.equal(weight, theirs[name]) for name, weight in back.state_dict().items())


def test_an_adapter_adds_in_llama_cpps_rows_what_merging_adds(
    home: Path, versions: Versions, llama: Path, tmp_path: Path
) -> None:
    """llama.cpp's sum, alpha / rank * B A on the base's own tensors, gives the tensors of the merged file."""
    out = tmp_path / "adapter.gguf"
    words = ["export", str(out), "--format", "gguf-adapter", "--home", str(home)]
    assert "adapter of version 1" in run.invoke(app, words, catch_exceptions=False).stderr
    write_model(llama, tmp_path / "base.gguf", "f32", name="base")
    run.invoke(app, ["merge", str(tmp_path / "m.gguf"), "--gguf", "f32", "--home", str(home)])
    base, merged, factors = (tensors(tmp_path / name) for name in ("base.gguf", "m.gguf", "adapter.gguf"))
    reader = gguf.GGUFReader(out)
    assert reader.fields["general.type"].contents() == "adapter"
    assert reader.fields["general.architecture"].contents() == "llama"
    alpha = reader.fields["adapter.lora.alpha"].contents()
    changed = {name.removesuffix(".lora_a") for name in factors if name.endswith(".lora_a")}
    assert {f"blk.0.attn_{part}.weight" for part in ("q", "k", "v", "output")} <= changed
    for name in changed:
        a_RI, b_OR = factors[f"{name}.lora_a"], factors[f"{name}.lora_b"]
        expected = base[name] + alpha / len(a_RI) * (b_OR @ a_RI)
        np.testing.assert_allclose(expected, merged[name], atol=1e-5)
        assert np.abs(merged[name] - base[name]).max() > 1e-3


def test_what_is_not_written_is_said(home: Path, llama: Path, versions: Versions, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        return str(run.invoke(app, [*words, "--home", str(home)]).exception)

    assert "--gguf q3: it must be one of f32, f16, bf16, q8_0" in refused(
        "merge", str(tmp_path / "m"), "--gguf", "q3"
    )
    adapter = ("export", "--format", "gguf-adapter")
    assert "writes a file: name it" in refused(*adapter)
    assert "version 0 is the original model" in refused(*adapter, str(tmp_path / "a"), "--version", "0")
    assert "is not empty: name another place" in refused(*adapter, str(llama / "config.json"))
    shutil.rmtree(home / "versions")
    trained(home, llama, lora_rank=0)
    assert "version 1 has whole weights, no adapter: `afterwit merge --gguf`" in refused(
        *adapter, str(tmp_path / "a")
    )
    assert not list(tmp_path.glob("*a"))
