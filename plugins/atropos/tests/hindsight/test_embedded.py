"""Rollouts that the embedded engine sampled and scored, on the wire, against plain forwards in float64."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from afterwit.chat_format.render import Renderer
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.turn import Conversation
from afterwit_atropos.group import Profile, group_of
from afterwit_atropos.rollout import ScoredRollout
from afterwit_atropos.wire import SENTINEL, read, write
from plugins.atropos.tests.hindsight.school import hindsight
from tests.fakes.models import tiny_qwen3
from tests.fakes.played import calls, played
from tests.fakes.rollouts import HINT

CLOSE = 2e-4
"""Of log-probs in float32 by two ways of attending."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("policy"), num_hidden_layers=1)


@pytest.fixture
def renderer(folder: Path) -> Renderer:
    return Renderer.load(folder)


@pytest.fixture
async def engine(folder: Path, renderer: Renderer) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(folder, EmbeddedSettings(slots=2), script=calls(renderer), seed=0)
    yield engine
    await engine.close()


class WithoutHint:
    """A rendering in which a hint changes nothing."""

    def __init__(self, renderer: Renderer, rollout_prompts: dict[int, Conversation]) -> None:
        self._renderer, self._plain = renderer, rollout_prompts

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        return self._renderer.prompt_ids(self._plain[len(conversation.messages)])


async def unhinted(engine: EmbeddedEngine, renderer: Renderer, temperature: float) -> ScoredRollout:
    rollout = await played(engine, renderer, 4, temperature=temperature)
    plain = {len(turn.conversation.messages): turn.conversation for turn in rollout.in_order}
    return await hindsight(engine, WithoutHint(renderer, plain), temperature=temperature).score(rollout)


async def test_a_hint_that_changes_nothing_gives_a_zero_gap(engine: EmbeddedEngine, renderer: Renderer):
    scored = await unhinted(engine, renderer, 0.6)
    assert len(scored.scored) == 4
    for turn in scored.scored:
        taught = [row.logprobs[0] for row in turn.rows]
        assert taught == pytest.approx(turn.turn.sampled.logprobs, abs=CLOSE)


async def test_a_hint_that_changes_nothing_gives_a_zero_advantage_on_the_wire(
    engine: EmbeddedEngine, renderer: Renderer
):
    scored = await unhinted(engine, renderer, 1.0)
    data = write(group_of([scored], [0.5]), Profile.SAMPLED)
    (own,), (rows,), (mask,) = data["inference_logprobs"], data["distill_logprobs"], data["masks"]
    assert [row[0] for row in rows] == pytest.approx(own, abs=CLOSE)
    outside = [row[0] for row, inside in zip(rows, mask, strict=True) if inside == -100]
    assert set(outside) == {SENTINEL}


async def test_a_tool_call_and_the_id_that_ends_it_are_scored_where_they_were_captured(
    engine: EmbeddedEngine, renderer: Renderer
):
    rollout = await played(engine, renderer, 3)
    scored = await hindsight(engine, renderer).score(rollout)
    (sequence,) = group_of([scored], [1.0]).sequences
    assert sequence.rows is not None
    taught = tuple(row.ids[0] for row in sequence.rows if row is not None)
    text = renderer.decode(taught)
    assert text.count('<tool_call>\n{"name": "terminal"') == text.count("</tool_call><|im_end|>") == 3


@pytest.mark.parametrize(("placement", "temperature"), zip(Placement, (1.0, 0.6), strict=True))
async def test_rows_are_what_a_plain_forward_of_the_hinted_prompt_says_in_float64(
    engine: EmbeddedEngine, renderer: Renderer, folder: Path, placement: Placement, temperature: float
):
    rollout = await played(engine, renderer, 3, temperature=temperature)
    school = hindsight(engine, renderer, placement=placement, temperature=temperature, top_k=6)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    for turn in (await school.score(rollout)).scored:
        prompt = renderer.prompt_ids(splice(turn.turn.conversation, HINT, placement))
        ids = turn.turn.sampled.ids
        with torch.no_grad():
            logits_TV = model(torch.tensor([(*prompt, *ids)])).logits[0, len(prompt) - 1 : -1]
        logprobs_TV = (logits_TV / temperature).log_softmax(-1)
        for token, row, logprobs_V in zip(ids, turn.rows, logprobs_TV, strict=True):
            likeliest = [each for each in logprobs_V.argsort(descending=True).tolist() if each != token]
            assert row.ids == (token, *likeliest[:5])
            assert row.logprobs == pytest.approx(logprobs_V[list(row.ids)].tolist(), abs=CLOSE)


async def test_the_hints_that_are_compared_are_scored_beside_the_policy_itself(
    engine: EmbeddedEngine, renderer: Renderer
):
    from tests.fakes.judge import FakeJudge

    hints = iter(["List the folder first.", HINT, "Ask which file is meant, and then read it."] * 2)
    judge = FakeJudge(lambda messages: rf"\boxed{{1}}[HINT_START]{next(hints)}[HINT_END]")
    rollout = await played(engine, renderer, 2)
    scored = await hindsight(engine, renderer, judge, hint_selection="token_optimal").score(rollout)
    assert [len(turn.hints) for turn in scored.scored] == [3, 3]
    again = read(write(group_of([scored], [1.0], top_k=5), Profile.TOPK), vocabulary=engine.facts.vocabulary)
    assert again.sequences[0].notes is not None
    assert {turn.teacher_version for turn in again.sequences[0].notes.turns} == {0}
