"""New weights while responses are under way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.runner import PrefillBudget
from afterwit.engines.port import Step, Weights
from afterwit.errors import EngineError
from tests.engines.parrot import Parrot, parrot_engine, runner_of, sequence_of
from tests.engines.talk import ask, plain_logits, rescored, say, swapped_under_load


async def swap(engine: EmbeddedEngine, version: int, folder: Path) -> None:
    await engine.stage(version, folder)
    await engine.promote()


async def test_each_token_names_the_version_that_said_it_across_swaps_under_load() -> None:
    """A parrot's word is its version, so a token recorded under another version shows."""
    engine = parrot_engine(slots=16, budget=PrefillBudget(chunk=8, per_step=8))
    requests = [ask([1] * (1 + i), max_tokens=100, background=i % 5 == 0) for i in range(32)]
    said = await swapped_under_load(engine, requests, [Path(str(n)) for n in range(1, 5)])
    await engine.close()
    for steps in said:
        words, versions = [step.ids[0] for step in steps], [step.versions[0] for step in steps]
        assert len(words) == 100
        assert words == versions == sorted(versions)
        (cached,) = {step.cache_version for step in steps}
        assert cached is not None
        assert cached <= versions[0]
    assert {step.versions[0] for steps in said for step in steps} == {0, 1, 2, 3, 4}


def test_a_prompt_read_across_a_swap_names_the_older_version_as_its_cache() -> None:
    """Its first token is the new version's, but part of its prompt was read under the old one."""
    taken: list[Step] = []
    runner = runner_of(Parrot(0), budget=PrefillBudget(chunk=10, per_step=10))
    runner.add(sequence_of([1] * 15, taken.append, max_tokens=2))
    runner.tick(1)
    runner.swap(7, Parrot(7))
    runner.tick(2)
    runner.tick(3)
    assert [step.versions for step in taken] == [(7,), (7,)]
    assert [step.cache_version for step in taken] == [0, 0]


async def test_base_weights_stay_when_live_ones_change() -> None:
    engine = parrot_engine()
    await swap(engine, 3, Path("3"))
    live, base = [await say(engine, ask([1], weights=weights)) for weights in (Weights.LIVE, Weights.BASE)]
    assert (set(live.ids), set(live.versions)) == ({3}, {3})
    assert (set(base.ids), set(base.versions)) == ({0}, {0})
    await engine.close()


async def test_after_a_swap_the_new_weights_answer(
    engine: EmbeddedEngine, qwen: Path, newer_qwen: Path
) -> None:
    await swap(engine, 1, newer_qwen)
    request = ask(range(3, 40))
    said = await say(engine, request)
    assert set(said.versions) == {1}
    assert said.logprobs == pytest.approx(rescored(newer_qwen, request, said, 1.0).tolist(), abs=1e-4)
    base = ask(range(3, 40), weights=Weights.BASE)
    said = await say(engine, base)
    assert said.logprobs == pytest.approx(rescored(qwen, base, said, 1.0).tolist(), abs=1e-4)


async def test_a_probe_scores_the_staged_weights_and_leaves_the_live_ones(
    engine: EmbeddedEngine, newer_qwen: Path
) -> None:
    ids = list(range(10, 70))
    await engine.stage(1, newer_qwen)
    plain = plain_logits(newer_qwen, ids)[:-1].log_softmax(-1)
    expected = plain.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert await engine.probe(ids) == pytest.approx(expected.tolist(), abs=1e-4)
    assert engine.version == 0
    await engine.discard()
    assert set((await say(engine, ask(ids))).versions) == {0}
    with pytest.raises(EngineError, match="No weights are staged"):
        await engine.promote()


async def test_weights_of_another_model_are_refused(engine: EmbeddedEngine, llama: Path) -> None:
    with pytest.raises(EngineError, match="do not fit the served model"):
        await engine.stage(1, llama)


async def test_a_version_without_all_its_weights_is_refused(
    engine: EmbeddedEngine, qwen: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    (tmp_path / "config.json").write_bytes((qwen / "config.json").read_bytes())
    tensors = load_file(qwen / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"missing: .*model\.norm\.weight"):
        await engine.stage(1, tmp_path)


async def test_a_probe_that_the_vocabulary_does_not_hold_is_an_engine_error(
    engine: EmbeddedEngine, newer_qwen: Path
) -> None:
    await engine.stage(1, newer_qwen)
    with pytest.raises(EngineError, match="cannot be probed"):
        await engine.probe([1, 100_000, 1])
