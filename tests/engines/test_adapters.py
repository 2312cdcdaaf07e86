"""Versions that are adapters: merged over the base, each from the base as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.engine import EmbeddedEngine, load_module, load_version
from afterwit.engines.embedded.forward import score
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Weights
from afterwit.errors import EngineError
from afterwit.turn import SHARED
from afterwit.weights.adapter import TENSORS
from afterwit.weights.agreement import gap
from tests.engines.talk import ask, rescored, say, swapped_under_load
from tests.fakes.adapters import by_peft, noise
from tests.fakes.models import tiny_llama

CPU = torch.device("cpu")
IDS = list(range(10, 70))


def logprobs(qwen: Path, adapter: Path, ids: list[int]) -> list[float]:
    """Of ids[1:], by PEFT in float64."""
    with torch.inference_mode():
        logits_TV = by_peft(qwen, adapter)(input_ids=torch.tensor([ids])).logits[0, :-1]
    return logits_TV.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


async def test_an_adapters_weights_answer_and_the_base_stays_the_judges(
    engine: EmbeddedEngine, qwen: Path, adapters: list[Path]
) -> None:
    await engine.stage(1, adapters[0])
    assert await engine.probe(IDS) == pytest.approx(logprobs(qwen, adapters[0], IDS), abs=1e-4)
    await engine.promote()
    request = ask(range(3, 40))
    said = await say(engine, request)
    expected = logprobs(qwen, adapters[0], [*request.prompt_ids, *said.ids])[-len(said.ids) :]
    assert set(said.versions) == {1}
    assert said.logprobs == pytest.approx(expected, abs=1e-4)
    judge = ask(range(3, 40), weights=Weights.BASE)
    said = await say(engine, judge)
    assert said.logprobs == pytest.approx(rescored(qwen, judge, said, 1.0).tolist(), abs=1e-4)


async def test_after_many_swaps_a_version_gives_the_very_numbers_it_gave_first(
    engine: EmbeddedEngine, newer_qwen: Path, adapters: list[Path]
) -> None:
    firsts: dict[Path, list[float]] = {}
    for version in range(1, 10):
        folder = [*adapters, newer_qwen][version % 3]
        await engine.stage(version, folder)
        served = await engine.probe(IDS)
        await engine.promote()
        assert firsts.setdefault(folder, served) == served
    assert len({tuple(served) for served in firsts.values()}) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_version_starts_from_the_base_and_leaves_it_bit_for_bit(
    dtype: torch.dtype, qwen: Path, adapters: list[Path]
) -> None:
    base, untouched = load_module(qwen, CPU, dtype), load_module(qwen, CPU, dtype)
    first = load_version(adapters[0], base, qwen, CPU, dtype)
    for number in range(4):
        load_version(adapters[number % 2], base, qwen, CPU, dtype)
    again = load_version(adapters[0], base, qwen, CPU, dtype)
    for one, other in ((base, untouched), (first, again)):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
        assert score(one, IDS) == score(other, IDS)
    assert score(base, IDS) != score(first, IDS)


def test_a_version_holds_copies_of_the_layers_that_its_adapter_moves_and_of_nothing_else(
    qwen: Path, adapters: list[Path]
) -> None:
    base = load_module(qwen, CPU, torch.float32)
    served = load_version(adapters[0], base, qwen, CPU, torch.float32)
    for name, own in served.named_parameters():
        shared = own.data_ptr() == base.get_parameter(name).data_ptr()
        assert shared == ("_proj" not in name)


async def test_responses_under_way_live_through_swaps_of_adapters(
    engine: EmbeddedEngine, adapters: list[Path]
) -> None:
    requests = [ask(range(3, 20 + i), max_tokens=50, ignore_eos=True) for i in range(8)]
    said = await swapped_under_load(engine, requests, [adapters[n % 2] for n in range(3)])
    versions = [[step.versions[0] for step in steps] for steps in said]
    assert all(len(of_one) == 50 and of_one == sorted(of_one) for of_one in versions)
    assert {version for of_one in versions for version in of_one} == set(range(4))


async def test_an_adapter_that_does_not_fit_is_refused_and_serving_goes_on(
    engine: EmbeddedEngine, adapters: list[Path], tmp_path: Path
) -> None:
    other = tiny_llama(tmp_path / "llama", num_hidden_layers=3)
    strange = noise(tmp_path / "strange", other, seed=1)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in adapters[0].iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    (damaged / TENSORS).write_bytes(b"half of")
    for folder in (strange, damaged):
        with pytest.raises(EngineError, match=f"The adapter in {folder} does not fit"):
            await engine.stage(1, folder)
        with pytest.raises(EngineError, match="No weights are staged"):
            await engine.promote()
    assert set((await say(engine, ask(range(3, 9)))).versions) == {0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("whose", [SHARED, "key:ann"])
async def test_a_probe_takes_the_staged_adapter_as_often_as_it_is_told(
    dtype: str, whose: str, qwen: Path, adapters: list[Path], tmp_path: Path
) -> None:
    """As PEFT does with the factor changed in its file; 0 is the base; afterwards it is what it was."""
    engine = EmbeddedEngine.load(qwen, EmbeddedSettings(dtype=dtype, device="cpu", slots=2), seed=0)
    await engine.stage(1, adapters[0], adapter=whose)
    plain = await engine.probe(IDS)
    thrice = shutil.copytree(adapters[0], tmp_path / "thrice")
    config = json.loads((thrice / "adapter_config.json").read_text())
    (thrice / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 3 * config["lora_alpha"]}))
    expected = logprobs(qwen, thrice, IDS)
    said = await engine.probe(IDS, times=3.0)
    assert gap(expected, said) < (1e-4 if dtype == "float32" else 0.1)
    assert gap(expected, plain) > 0.2
    assert await engine.probe(IDS) == plain
    base = await engine.probe(IDS, times=0.0)
    await engine.stage(2, qwen, adapter=whose)
    assert await engine.probe(IDS) == await engine.probe(IDS, times=3.0) == base
    await engine.close()
