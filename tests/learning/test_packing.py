"""Packed passes of the learner: the same rows, the same update."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.learning.batch import Item
from afterwit.learning.models import load_model
from afterwit.learning.passes import NEVER, Packing, Row, response_logits, stream_logits, token_ratio
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.packing.attention import unsupported_reason
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted, tiny_qwen3
from tests.learning.updates import EXACT, Given, frozen, furthest, items_of, policy_of, quiet, weights
from tests.packing.forests import forests, precise
from tests.products import diagonal

OFF = replace(EXACT, packing="off")
HINTS = ("Say it in one word.", "Read the file before you answer.", "Say it in one word, without a greeting.")
ALWAYS = Packing(True)


def precisely(
    student: Path, base: Path, items: list[Item], objective: ObjectiveSettings, how: LearnerSettings
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """`moved`, with norms that keep float64."""
    policy = policy_of(student, how)
    precise(policy.model)
    metrics, _ = update(policy, Given(precise(frozen(base)), how), items, objective, how, quiet)
    return weights(policy), metrics


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Sessions, retries, hints and duplicates; single-token responses."""
    found = [path.ids for path in draw(forests())]
    cuts = [draw(st.integers(1, max(1, len(ids) - 1))) for ids in found]
    return [Row(prompt=ids[:cut], response=ids[cut:] or (0,)) for ids, cut in zip(found, cuts, strict=True)]


@given(rows(), st.integers(1, 60), st.booleans())
def test_every_row_is_in_exactly_one_pass(rows: list[Row], limit: int, in_order: bool) -> None:
    for packing in (ALWAYS, NEVER):
        chosen = [each for one in packing.cut(rows, limit, in_order=in_order) for each in one.chosen]
        assert (chosen if in_order else sorted(chosen)) == list(range(len(rows)))


@given(rows())
def test_rows_are_packed_if_that_saves_a_sixth_of_their_tokens(rows: list[Row]) -> None:
    packed = {each.packed for each in ALWAYS.cut(rows, 1000)}
    assert packed == {len(rows) > 1 and token_ratio(rows) >= 1.2}


@pytest.fixture(scope="module")
def model(base: Path) -> PreTrainedModel:
    return precise(load_model(base, dtype=torch.float64, device=torch.device("cpu")))


@given(rows=rows(), limit=st.integers(1, 60))
def test_a_packed_stream_gives_each_row_the_logits_that_it_has_alone(
    model: PreTrainedModel, rows: list[Row], limit: int
) -> None:
    packing = Packing.of(EXACT, model)
    assert packing.allowed
    for row, logits_TV in zip(rows, stream_logits(model, rows, limit, packing), strict=True):
        (alone_TV,) = response_logits(model, [row])
        torch.testing.assert_close(logits_TV, alone_TV, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("teacher", "checkpointing"), diagonal(["base", "live"], [False, True]))
def test_an_update_is_the_same_packed_or_not(
    base: Path, renderer: Renderer, tmp_path: Path, teacher: str, checkpointing: bool
) -> None:
    """Retries of one prompt, three hints each, two epochs, with a reference KL and a running baseline."""
    student = reweighted(tmp_path, base, seed=3)
    objective = ObjectiveSettings(beta=0.1, baseline="running")
    samples = [
        a_sample(renderer, number, reward=reward, hints=hints, tokens=tokens)
        for number, (reward, hints, tokens) in enumerate([(-1, HINTS, 6), (1, (), 1), (-1, HINTS[:1], 9)])
    ]
    items = items_of(samples, renderer, objective)
    items += [items[0], replace(items[2], teachers=(), hints=())]
    how = {"teacher": teacher, "checkpointing": checkpointing, "epochs": 2}
    packed, of_packed = precisely(student, base, items, objective, replace(EXACT, **how))
    plain, of_plain = precisely(student, base, items, objective, replace(OFF, **how))
    assert of_packed["token_ratio"] == of_plain["token_ratio"] > 1.5
    assert of_packed == pytest.approx(of_plain, rel=1e-11, abs=1e-12)
    assert furthest(packed, plain) < 1e-9  # AdamW divides gradients of 1e-12 by themselves


@pytest.mark.parametrize("how", [EXACT, OFF], ids=["auto", "off"])
@pytest.mark.parametrize("hinted", [True, False])
def test_packing_happens_in_an_update_that_gains_by_it(
    how: LearnerSettings, hinted: bool, base: Path, renderer: Renderer
) -> None:
    """Teachers and reference, which are all the base, are one sequence without what they share. A reference
    that reads the first hint reads the same as a teacher."""
    how = replace(how, reference_reads_hints=hinted)
    model, read = frozen(base), list[int]()
    assert unsupported_reason(model) is None
    model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    items = items_of([a_sample(renderer, 0, hints=HINTS)], renderer, ObjectiveSettings())
    update(policy_of(base, how), Given(model, how), items, ObjectiveSettings(), how, quiet)
    rows = [*(() if hinted else [items[0].student]), *items[0].teachers]
    longest = max(len(row.inputs) for row in rows)
    whole = sum(len(row.inputs) for row in rows)
    expected = round(whole / token_ratio(rows)) if how.packing == "auto" else len(rows) * longest
    assert read == [expected]


def test_a_model_that_cannot_be_packed_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = frozen(tiny_qwen3(tmp_path), torch.float32)
    kinds = ["chunked_attention", "sliding_attention"]  # no other test has both
    model.config.layer_types = kinds
    with caplog.at_level(logging.INFO):
        choices = [Packing.of(EXACT, model, None) for _ in range(3)]
    assert choices == [NEVER] * 3
    assert [
        record.getMessage() for record in caplog.records if "chunked_attention" in record.getMessage()
    ] == [f"learn: rows are not packed, but run one sequence each: it has layers of {', '.join(kinds)}"]


def test_switched_off_no_model_is_asked() -> None:
    assert Packing.of(OFF) == NEVER
