"""`merge`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from afterwit.checkpoints.versions import Versions
from afterwit.cli.app import app
from afterwit.errors import SettingError
from afterwit.home.home import remember_model
from afterwit.home.merge import write_merged
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from tests.disk import room_for
from tests.store.examples import a_version

run = CliRunner()


def trained(home: Path, model: Path, **settings: int) -> Versions:
    """Version 1 of the home, with weights that are not the base's."""
    versions = Versions(root=home / "versions", base=model)
    policy = Policy.load(versions, 0, LearnerSettings(device="cpu", **settings))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.trained.model.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    versions.write(a_version(1), lambda folder: policy.trained.write(folder, model))
    remember_model(home, model)
    return versions


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(1, 20)[None]).logits


@pytest.mark.parametrize("rank", [0, 4])
def test_a_merged_version_is_an_ordinary_folder_that_computes_the_same(
    home: Path, model: Path, tmp_path: Path, rank: int
) -> None:
    versions, out = trained(home, model, lora_rank=rank), tmp_path / "merged"
    said = run.invoke(app, ["merge", str(out), "--home", str(home)], catch_exceptions=False).stdout
    assert "has the weights of version 1" in said
    names = {path.name for path in out.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert not names & {"manifest.json", "learner.state", "adapter_config.json"}
    AutoTokenizer.from_pretrained(out)
    place = versions.place(1)
    if rank:
        theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), place)
    else:
        theirs = AutoModelForCausalLM.from_pretrained(place)
    ours = AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(logits(ours), logits(theirs), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(logits(ours), logits(AutoModelForCausalLM.from_pretrained(model)), atol=1e-2)


def test_what_cannot_be_merged_is_said(home: Path, model: Path, tmp_path: Path) -> None:
    trained(home, model, lora_rank=4)

    def refused(*words: str) -> str:
        return str(run.invoke(app, ["merge", *words, "--home", str(home)]).exception)

    assert "version 0 is the original model" in refused(str(tmp_path / "m"), "--version", "0")
    assert "the weights of version 7 are not in" in refused(str(tmp_path / "m"), "--version", "7")
    assert "is not empty: name another place" in refused(str(model))
    assert "cannot be written" in refused(str(tmp_path / "no" / "folder"))


@pytest.mark.parametrize("rank", [0, 4])
def test_a_version_that_finds_no_room_is_a_line_and_leaves_nothing(
    home: Path, model: Path, tmp_path: Path, rank: int
) -> None:
    trained(home, model, lora_rank=rank)
    out = tmp_path / "merged"
    with room_for(100_000):
        failed = run.invoke(app, ["merge", str(out), "--home", str(home)]).exception
    assert isinstance(failed, SettingError)
    assert f"{out} cannot be written: " in str(failed)
    assert not [path for path in tmp_path.iterdir() if "merged" in path.name]


def test_weights_that_go_away_meanwhile_are_named_not_the_folder_to_write(
    home: Path, model: Path, tmp_path: Path
) -> None:
    class Forgotten(Versions):
        def verify(self, number: int) -> None:
            super().verify(number)
            for file in self.place(number).glob("*.safetensors"):
                file.unlink()

    trained(home, model, lora_rank=4)
    versions = Forgotten(root=home / "versions", base=model)
    with pytest.raises(SettingError, match="the weights of version 1 were removed while they were read"):
        write_merged(versions, 1, tmp_path / "merged")
