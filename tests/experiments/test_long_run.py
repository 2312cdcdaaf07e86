"""Hundreds of conversations in one process: the engine samples from the policy, which learns from them."""

from __future__ import annotations

import pytest
import torch

from afterwit.config import load
from afterwit.learning.score import Row, response_logits
from experiments.long_run import AT_ONCE, CONTEXT, ROOM, Run, asked, begun, kl_from_base, table
from experiments.published import TEMPERATURE, WORDS, Person
from tests.fakes.models import tiny_qwen3

OWN = {
    "learner.device": "cpu",
    "learner.threads": 1,
    "learner.dtype": "float64",
    "learner.lr": 1e-2,
    "learner.batch": 2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a tiny model, whose answers are noise, never a greeting, after eight conversations."""
    model = tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1)
    home = tmp_path_factory.mktemp("home")
    settings = load(home=home, pairs=(), direct=OWN | {"model": str(model)}, environment={})
    made = begun(model, Person(preference="greeting", seed=1), settings)
    made.talk(0, AT_ONCE)
    made.learner.learn()
    made.sampler.take(made.learner.policy)
    return made


@pytest.mark.slow
def test_the_engine_samples_from_the_policy_and_reports_its_log_probs(run: Run) -> None:
    policy, renderer = run.learner.policy, run.learner.renderer
    prompts = [renderer.prompt_ids(asked(question)) for question in ("Why?", "Why is the sky blue at noon?")]
    assert policy.number > 0
    assert kl_from_base(policy.model, run.plain) > 1e-6, "the policy has left the base"
    for prompt, answer in zip(prompts, run.sampler.answers(prompts), strict=True):
        (logits_TV,) = response_logits(policy.model, [Row(prompt=prompt, response=answer.ids)])
        own_TV = (logits_TV.float() / TEMPERATURE).log_softmax(-1)
        own_T = own_TV.gather(-1, torch.tensor(answer.ids)[:, None])[:, 0]
        assert own_T.tolist() == pytest.approx(answer.logprobs, abs=1e-4)
        assert len(answer.ids) <= ROOM
        assert answer.ended == (answer.ids[-1] in renderer.end_ids)


def test_a_policy_that_is_the_base_has_no_kl_from_it(run: Run) -> None:
    assert kl_from_base(run.learner.frozen.base(run.learner.policy), run.plain) == pytest.approx(0, abs=1e-9)


def test_every_turn_carries_what_a_competent_judge_says_of_it(run: Run) -> None:
    turns = [*run.learner.trained, *run.learner.waiting]
    assert turns
    for each in turns:
        content = run.person.content(each.turn.message.content or "")
        assert each.verdict.reward == (1 if content else -1)
        assert each.opd == (not content)
        assert all(hint in WORDS["preferences"]["greeting"]["hints"] for hint in each.verdict.hints)
        assert len(each.turn.prompt_ids) < CONTEXT
    assert len(run.learner.trained) == 2 * len(run.learner.updates)
    assert len(turns) <= 2 * AT_ONCE


def test_a_row_of_the_table_is_a_run() -> None:
    point = {
        "conversations": 16,
        "share": 0.5,
        "complaints": 15,
        "bad": 1,
        "kl": 0.06,
        "version": 5,
        "way": 0.3,
    }
    later = point | {"conversations": 48, "share": 0.75, "complaints": 4, "bad": 0, "way": 0.4}
    run = {"preference": "short", "seed": 31, "settings": {"learner.lr": 1e-4}, "points": [point, later]}
    assert table([run]).splitlines() == [
        "| settings of its own | preference | seed | 16 | 48 | disliked | bad | way |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `learner.lr=0.0001` | short | 31 | 0.50 (0.06) | 0.75 (0.06) | 15, 4 | 1 | 0.35 |",
    ]
