"""A published model in half precision on the embedded engine learns, and serves what it learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import ProbeMismatch
from afterwit.weights.agreement import gap
from tests.engines.half import Deaf, Pupil, learns_and_tells


def served(model: Path, dtype: str) -> EmbeddedEngine:
    return EmbeddedEngine.load(model, EmbeddedSettings(dtype=dtype, device="cpu", slots=2, threads=1), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine_dtype", "learner_dtype"),
    [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")],
)
async def test_what_it_learned_is_served_and_nothing_else_passes_for_it(
    engine_dtype: str, learner_dtype: str, published_model: Path, tmp_path: Path
) -> None:
    engine = served(published_model, engine_dtype)
    await learns_and_tells(tmp_path, published_model, engine, dtype=learner_dtype)
    await engine.close()


@pytest.mark.slow
async def test_whole_weights_that_were_not_taken_are_found_out(published_model: Path, tmp_path: Path) -> None:
    """One update moves a log-prob by a thousandth: the noise shows it, which differs for other weights."""
    engine = served(published_model, "bfloat16")
    pupil = await Pupil.begin(tmp_path, published_model, engine, dtype="bfloat16", rank=0)
    await pupil.learn(2)
    with pytest.raises(ProbeMismatch, match="to the bit as with the weights of the base"):
        await pupil.publisher(Deaf(engine, published_model)).step()
    publisher = pupil.publisher()
    assert await publisher.step()
    said = await engine_says(engine, pupil, 1)
    noise, apart = gap(pupil.probe(1).logprobs, said), gap(said, await engine_says(engine, pupil, 0))
    print(f"whole weights: {noise:.3f} nats from the learner's, {apart:.3f} from the base's answer")
    assert noise < 3 * apart
    assert apart > 0.01
    await engine.close()


async def engine_says(engine: EmbeddedEngine, pupil: Pupil, number: int) -> list[float]:
    """The engine's log-probs of the probe with a version's weights."""
    await engine.stage(number, pupil.folder(number))
    said = await engine.probe(pupil.probe(number).ids)
    await engine.discard()
    return said
