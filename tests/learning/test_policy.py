from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.manifest import NAME
from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import SettingError, UpdateRefused, VersionDamaged
from afterwit.learning.batch import Item, Refused
from afterwit.learning.models import device_of, load_model
from afterwit.learning.passes import Phase, probe
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings, Precision
from afterwit.learning.trainer import Trainer
from afterwit.lifecycle import Reason
from afterwit.objective.settings import ObjectiveSettings
from afterwit.version import Origin, Version
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import tiny_llama, tiny_qwen3
from tests.learning.updates import furthest, quiet, weights

OBJECTIVE = ObjectiveSettings(baseline="running", beta=0.1)
CPU = torch.device("cpu")


def trainer_in(
    folder: Path, base: Path, renderer: Renderer, dtype: Precision = "float32", **more: Any
) -> Trainer:
    """With full weights by default. Without packing: a model is tried for it each time it is loaded."""
    plain: dict[str, Any] = {"device": "cpu", "lr": 1e-3, "epochs": 2, "max_tokens": 512}
    plain |= {"packing": "off", "measure_effects": False}
    settings = LearnerSettings(**{"dtype": dtype, "lora_rank": 0} | plain | more)
    trainer = Trainer(Versions(root=folder, base=base), renderer, settings=settings, objective=OBJECTIVE)
    trainer.begin(now=1.0)
    return trainer


def items(trainer: Trainer, renderer: Renderer, numbers: range) -> list[Item]:
    samples = [a_sample(renderer, number, reward=1 if number % 3 else -1) for number in numbers]
    return trainer.build(samples)[0]


def go_on(trainer: Trainer, renderer: Renderer, updates: range) -> Version:
    """The version after these updates, each on turns of its own."""
    for number in updates:
        new = items(trainer, renderer, range(4 * number, 4 * number + 4))
        made = trainer.train(new, [], now=float(number), progress=quiet)
    return made


WAYS = pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            {"dtype": dtype, "lora_rank": rank, "teacher": teacher, "ema_decay": 0.5},
            marks=marks,
            id=f"{dtype}-r{rank}-{teacher}",
        )
        for dtype, rank, teacher, marks in (
            ("float32", 0, "ema", pytest.mark.slow),
            ("float32", 16, "base", pytest.mark.slow),
            ("bfloat16", 0, "base", pytest.mark.slow),
            ("bfloat16", 16, "ema", ()),
        )
    ],
)
"""Every pair of precision, kind of weights and teacher; the one with the most state is fast."""


@WAYS
def test_resuming_from_disk_equals_going_on_in_memory_bit_for_bit(
    way: dict[str, Any], base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    straight = trainer_in(tmp_path / "straight", base, renderer, **way)
    go_on(straight, renderer, range(2))
    for update in range(2):
        go_on(trainer_in(tmp_path / "broken", base, renderer, **way), renderer, range(update, update + 1))
    resumed = trainer_in(tmp_path / "broken", base, renderer, **way)
    assert furthest(weights(straight.policy()), weights(resumed.policy())) == 0.0
    assert straight.policy().reward_mean == resumed.policy().reward_mean != 0.0
    assert timeless(straight.versions.get(2)) == timeless(resumed.versions.get(2))
    one, other = (each.versions.place(2) for each in (straight, resumed))
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    for path in one.iterdir():
        if path.name != NAME:
            assert path.read_bytes() == (other / path.name).read_bytes()


def timeless(version: Version | None) -> Version:
    """A version without the seconds that its update took."""
    assert version is not None
    metrics = {name: value for name, value in version.metrics.items() if not name.startswith("seconds_")}
    return replace(version, metrics=metrics)


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_a_version_is_an_ordinary_folder_whose_weights_give_its_probe(
    dtype: Precision, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer, dtype)
    made = go_on(trainer, renderer, range(1))
    folder = trainer.versions.weights(1)
    served = load_model(folder, dtype=getattr(torch, dtype), device=CPU)
    assert probe(served) == made.probe
    assert probe(served) != probe(load_model(base, dtype=getattr(torch, dtype), device=CPU))
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == served.config.vocab_size
    assert len(AutoTokenizer.from_pretrained(folder)) > 0
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (folder / name).read_bytes() == (base / name).read_bytes()
    assert Renderer.load(folder).tokenizer_hash == renderer.tokenizer_hash


def test_a_model_with_an_untied_head_is_written_whole(tmp_path: Path) -> None:
    base = tiny_llama(tmp_path / "base")
    renderer = Renderer.load(base)
    trainer = trainer_in(tmp_path / "versions", base, renderer)
    made = go_on(trainer, renderer, range(1))
    assert probe(load_model(trainer.versions.weights(1), dtype=torch.float32, device=CPU)) == made.probe


def test_the_base_is_known_as_version_0_and_not_copied(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer)
    zero = trainer.versions.get(0)
    assert zero is not None
    assert zero.origin is Origin.BASE
    assert zero.probe == probe(load_model(base, dtype=torch.float32, device=CPU))
    assert [path.name for path in trainer.versions.place(0).iterdir()] == ["manifest.json"]


@WAYS
def test_learning_on_from_a_rollback_is_learning_on_from_the_version_it_restores(
    way: dict[str, Any], base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer, **way)
    go_on(trainer, renderer, range(2))
    first = Policy.load(trainer.versions, 1, trainer.settings)
    roll_back(trainer.versions, 1, now=5.0)
    rolled = trainer.policy()
    assert rolled.number == 3
    assert furthest(weights(rolled), weights(first)) == 0.0
    for one, other in zip(rolled.masters.named.values(), first.masters.named.values(), strict=True):
        for moment, value in rolled.optimizer.state[one].items():
            assert torch.equal(value, first.optimizer.state[other][moment])
    if rolled.ema is not None and first.ema is not None:
        assert furthest(rolled.ema.named, first.ema.named) == 0.0


@WAYS
def test_a_rollback_to_the_base_restores_its_weights(
    way: dict[str, Any], base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer, **way)
    go_on(trainer, renderer, range(1))
    made = roll_back(trainer.versions, 0, now=5.0)
    assert not trainer.policy().optimizer.state
    assert probe(trainer.policy().model) == made.probe
    assert go_on(trainer, renderer, range(1, 2)).number == 3


def test_a_full_precision_learner_takes_the_masters_of_a_rounded_version(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    rounded = trainer_in(tmp_path, base, renderer, "bfloat16")
    go_on(rounded, renderer, range(1))
    whole = Policy.load(rounded.versions, 1, replace(rounded.settings, dtype="float32"))
    assert furthest(weights(whole), weights(rounded.policy())) == 0.0


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 16])
@pytest.mark.parametrize(
    ("before", "after"),
    [("float64", "float32"), pytest.param("float32", "float64", marks=pytest.mark.slow)],
)
def test_a_home_learns_on_at_another_precision(
    rank: int, before: Precision, after: Precision, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    """It comes to the same weights, up to rounding."""
    for home in ("own", "other"):
        go_on(trainer_in(tmp_path / home, base, renderer, before, lora_rank=rank), renderer, range(1))
    own, other = (
        trainer_in(tmp_path / home, base, renderer, dtype, lora_rank=rank)
        for home, dtype in (("own", before), ("other", after))
    )
    start = weights(own.policy())
    for trainer in (own, other):
        go_on(trainer, renderer, range(1, 2))
    moved = furthest(weights(own.policy()), start)
    assert moved > 1e-3
    assert furthest(weights(other.policy()), weights(own.policy())) < 1e-3 * moved


@WAYS
def test_an_interrupted_update_leaves_the_policy_at_the_version_on_disk(
    way: dict[str, Any], base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer, **way)
    before = weights(trainer.policy())

    def stop(phase: Phase) -> None:
        if phase is Phase.STEPPED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.train(items(trainer, renderer, range(4)), [], now=1.0, progress=stop)
    assert furthest(weights(trainer.policy()), before) == 0.0
    assert trainer.versions.numbers() == [0]


@pytest.mark.parametrize("rank", [0, 16])
def test_weights_that_give_no_numbers_are_never_written(
    rank: int, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer, lora_rank=rank)

    def spoil(phase: Phase) -> None:
        if phase is Phase.STEPPED:
            with torch.no_grad():
                next(iter(trainer.policy().masters.named.values())).fill_(float("nan"))

    new = items(trainer, renderer, range(4))
    trainer.settings = replace(trainer.settings, epochs=1)
    with pytest.raises(UpdateRefused, match="not finite"):
        trainer.train(new, [], now=1.0, progress=spoil)
    assert trainer.versions.numbers() == [0]


def test_a_folder_without_a_model_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="the model must be a Hugging Face folder"):
        load_model(tmp_path, dtype=torch.float32, device=CPU)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(SettingError, match="transformers cannot load"):
        load_model(tmp_path, dtype=torch.float32, device=CPU)


def test_weights_of_another_shape_are_named_with_what_to_do(tmp_path: Path) -> None:
    config = tiny_qwen3(tmp_path / "model") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"intermediate_size": 24}))
    with pytest.raises(SettingError, match=r"not those of .*mlp.down_proj.*: download it again"):
        load_model(config.parent, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize("name", ["gpu", "warp:9"])
def test_a_device_that_is_none_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(SettingError, match="try auto, cpu or cuda"):
        device_of(name)


def test_a_turn_longer_than_the_models_own_context_does_not_train(renderer: Renderer, tmp_path: Path) -> None:
    base = tiny_llama(tmp_path / "base", max_position_embeddings=64)
    trainer = trainer_in(tmp_path / "versions", base, Renderer.load(base))
    items, refused = trainer.build([a_sample(renderer, 0), a_sample(renderer, 1, tokens=64)])
    assert [item.turn for item in items] == ["turn0000"]
    assert refused == [Refused(turn="turn0001", reason=Reason.TOO_LONG)]


@pytest.mark.parametrize("name", ["model.safetensors", "learner.state"])
def test_damaged_weights_are_named_and_a_rollback_helps(
    name: str, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer)
    go_on(trainer, renderer, range(2))
    versions = trainer.versions
    (versions.place(2) / name).write_bytes(b"half of")
    with pytest.raises((SettingError, VersionDamaged), match="000002"):
        trainer_in(tmp_path, base, renderer)
    assert roll_back(versions, 1, now=2.0).number == 3
    assert trainer_in(tmp_path, base, renderer).policy().number == 3
