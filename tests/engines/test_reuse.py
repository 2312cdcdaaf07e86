"""Keys and values that are found again: a request reads only what is new, and its response is the same."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from afterwit.engines.embedded.cache import PrefixCache, Row
from afterwit.engines.embedded.engine import attend_in_slots
from afterwit.engines.embedded.runner import ModelRunner, PrefillBudget
from afterwit.engines.embedded.sequence import ResponseSequence
from afterwit.engines.port import Step
from tests.engines.parrot import sequence_of
from tests.engines.test_forward import load_toy

CONTEXT = 512
POISON = 127
"""Reading this token raises."""
COPIED, IN_PLACE = None, 0
BUDGET = 150_000
"""Bytes: some five of the rows below."""


@dataclass
class Said:
    """A request and the steps that were delivered."""

    sequence: ResponseSequence
    steps: list[Step | Exception] = field(default_factory=list)

    @property
    def prompt(self) -> list[int]:
        return list(self.sequence.request.prompt_ids)

    @property
    def given(self) -> list[Step]:
        return [step for step in self.steps if isinstance(step, Step)]

    @property
    def ids(self) -> list[int]:
        return [step.ids[0] for step in self.given]


@cache
def toys() -> list[nn.Module]:
    """Three versions of a small model."""
    return [load_toy("llama", seed=seed) for seed in range(3)]


class House:
    """A runner over a small model that the test steps itself, and the tokens that its prompts cost."""

    def __init__(self, in_place: int | None = COPIED, *, budget: int = BUDGET, chunk: int = 16) -> None:
        self.modules = deepcopy(toys())
        self.read = 0
        for module in self.modules:
            attend_in_slots(module)
            module.register_forward_pre_hook(self._count, with_kwargs=True)
        self.kept = PrefixCache(budget)
        budget = PrefillBudget(chunk=chunk, per_step=chunk)
        self.runner = ModelRunner(
            self.modules[0],
            slots=4,
            reserve=1,
            context_length=CONTEXT,
            budget=budget,
            cache=self.kept,
            in_place=in_place,
        )
        self._ticks = 0

    def _count(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if (named["input_ids"] == POISON).any():
            raise RuntimeError("poison")
        if isinstance(named.get("past_key_values"), Row):
            self.read += named["input_ids"].shape[1]

    def ask(self, prompt: Sequence[int], *, max_tokens: int = 5, **more: Any) -> Said:
        said = Said(sequence_of(prompt))
        said.sequence = sequence_of(prompt, said.steps.append, max_tokens=max_tokens, **more)
        self.runner.add(said.sequence)
        return said

    @torch.inference_mode()
    def ticks(self, count: int) -> None:
        for _ in range(count):
            self._ticks += 1
            self.runner.tick(self._ticks)

    @torch.inference_mode()
    def cancel(self, said: Said) -> None:
        self.runner.cancel(said.sequence)

    def finish(self) -> None:
        while not self.runner.idle:
            self.ticks(1)

    def say(self, prompt: Sequence[int], **more: Any) -> Said:
        said = self.ask(prompt, **more)
        self.finish()
        return said

    def cost(self, prompt: Sequence[int], **more: Any) -> int:
        """Prompt tokens that were read in pieces for this request alone."""
        before = self.read
        self.say(prompt, **more)
        return self.read - before

    @torch.inference_mode()
    def check(self, said: Said) -> None:
        """Its log-probs are those of one plain forward of the weights that read and sampled everything."""
        (version,) = {step.versions[0] for step in said.given}
        assert {step.cache_version for step in said.given} == {version}
        ids = torch.tensor([[*said.prompt, *said.ids]])
        logits_TV = self.modules[version](input_ids=ids, use_cache=False).logits[0, len(said.prompt) - 1 : -1]
        plain_T = logits_TV.log_softmax(-1).gather(-1, torch.tensor(said.ids)[:, None])[:, 0]
        given = [step.logprobs[0] for step in said.given]
        assert given == pytest.approx(plain_T.tolist(), abs=1e-4)


@pytest.fixture(params=[COPIED, IN_PLACE], ids=["copied", "in place"])
def house(request: pytest.FixtureRequest) -> House:
    """Prompts that are copied into the batch, and prompts that stay where they are."""
    return House(request.param)


PROMPT = list(range(3, 83))


def test_a_sessions_next_turn_reads_only_what_is_new(house: House) -> None:
    text = PROMPT
    for _ in range(4):
        said = house.say(text)
        house.check(said)
        text = [*text, *said.ids, *range(90, 110)]
        before = house.read
        house.check(house.say([*text, 2, 1]))
        assert house.read - before <= 20 + 2 + 1, "the response's last token was never read"


def test_the_first_step_counts_the_prompt_tokens_that_were_read_before(house: House) -> None:
    first, again = house.say(PROMPT), house.say([*PROMPT, 2, 1])
    assert [step.cached for step in first.given] == [0, None, None, None, None]
    assert again.given[0].cached is not None
    assert len(PROMPT) - 1 <= again.given[0].cached <= len(PROMPT)


def test_a_prompt_that_was_read_is_not_read_again(house: House) -> None:
    assert house.cost(PROMPT) == len(PROMPT)
    assert house.cost(PROMPT) == 0
    assert house.cost(PROMPT[:50]) == 0
    assert house.cost([*PROMPT[:50], *range(100, 120)]) == 20


def test_choices_and_judges_calls_that_begin_together_read_their_prompt_once(house: House) -> None:
    together = [house.ask(PROMPT, seed=seed, max_tokens=8) for seed in range(7)]
    house.finish()
    assert house.read == len(PROMPT)
    assert len({tuple(said.ids) for said in together}) > 1
    for said in together:
        house.check(said)


def test_a_prompt_waits_for_one_that_begins_like_it_and_reads_the_rest(house: House) -> None:
    one = house.ask([*PROMPT, *range(90, 120)])
    other = house.ask([*PROMPT, *range(100, 110)])
    house.finish()
    assert house.read == len(PROMPT) + 30 + 10
    house.check(one)
    house.check(other)


def test_a_prompt_does_not_wait_for_background_work() -> None:
    house = House()
    house.runner.add(sequence_of(PROMPT, background=True))
    house.ticks(1)
    asked = house.ask(PROMPT)
    house.ticks(8)
    assert asked.steps
    house.finish()
    assert house.read == 2 * len(PROMPT) - 16, "what the other had read at the start was there to be copied"


def test_responses_in_the_background_step_rarely_while_a_persons_prompt_is_read() -> None:
    house = House()
    practised = house.ask([1, 2, 3], background=True, max_tokens=40, temperature=0.0, ignore_eos=True)
    house.ticks(5)
    asked, before, ticks = house.ask([*PROMPT, *range(100, 120)]), len(practised.steps), 0
    while not asked.steps:
        house.ticks(1)
        ticks += 1
    assert ticks >= 7, "a long prompt takes several pieces, none of which waits for the background"
    assert 1 <= len(practised.steps) - before <= ticks / 4 + 1
    after = len(practised.steps)
    house.ticks(4)
    assert len(practised.steps) == after + 4
    house.finish()
    house.check(practised)
    house.check(asked)


def test_a_client_that_leaves_while_its_prompt_is_read_leaves_what_was_read(house: House) -> None:
    leaver = house.ask(PROMPT)
    follower = house.ask([*PROMPT[:60], 99, 98])
    house.ticks(2)
    house.cancel(leaver)
    house.finish()
    assert house.read == 60 + 2
    house.check(follower)


def test_a_prompt_that_fails_takes_no_other_along(house: House) -> None:
    bad = house.ask([*PROMPT, POISON, 5])
    good = [house.ask([*PROMPT, *range(90, 95)], seed=seed) for seed in range(2)]
    house.finish()
    assert isinstance(bad.steps[-1], Exception)
    for said in good:
        assert len(said.ids) == 5
        house.check(said)
    house.check(house.say([*PROMPT, 4]))


def test_after_a_swap_nothing_that_older_weights_read_is_found(house: House) -> None:
    house.say(PROMPT)
    under_way = house.ask([*PROMPT, 90, 91], max_tokens=9)
    house.ticks(3)
    house.runner.swap(1, house.modules[1])
    assert house.cost(PROMPT) == len(PROMPT)
    house.finish()
    assert {step.cache_version for step in under_way.given} == {0}
    assert house.cost([*PROMPT, 90, 91, *under_way.ids, 92]) == 2 + 9 + 1, "only PROMPT is of the new weights"
    house.check(house.say([*PROMPT, 90, 91]))


def test_a_prompt_that_waits_when_weights_change_is_read_with_the_new_ones(house: House) -> None:
    leader, follower = house.ask(PROMPT), house.ask([*PROMPT, 9])
    house.ticks(2)
    house.runner.swap(1, house.modules[1])
    house.finish()
    assert {step.cache_version for step in leader.given} == {0}
    assert {step.cache_version for step in follower.given} == {1}
    house.check(follower)


def test_a_branch_leaves_the_longer_text_as_it_is(house: House) -> None:
    """A sub-agent that shares a fifth of a session's text: the session goes on without reading again."""
    said = house.say([*PROMPT, *range(40, 120), *PROMPT])
    session = [*said.prompt, *said.ids]
    assert house.cost([*PROMPT, 5, 6, 7]) == 3
    assert house.cost([*session, 8]) <= 2


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    house = House(budget=BUDGET)
    for first in range(20):
        house.say([first, *PROMPT])
        assert house.kept.nbytes <= BUDGET
    assert house.cost([19, *PROMPT]) == 0
    assert house.cost([0, *PROMPT]) == 1 + len(PROMPT)


def test_without_memory_for_it_every_prompt_is_read() -> None:
    house = House(budget=0)
    together = [house.ask(PROMPT, seed=seed) for seed in range(3)]
    house.finish()
    assert house.read == 3 * len(PROMPT)
    for said in together:
        house.check(said)


asked = st.tuples(
    st.just("ask"),
    st.integers(0, 5),
    st.integers(0, 60),
    st.lists(st.integers(1, 3), max_size=30),
    st.integers(1, 3),
)
steps = st.one_of(
    asked,
    asked,
    st.tuples(st.just("ticks"), st.integers(1, 6)),
    st.tuples(st.just("cancel"), st.integers(0, 10)),
    st.tuples(st.just("poison"), st.integers(0, 5)),
    st.just(("swap",)),
)


@given(
    story=st.lists(steps, min_size=3, max_size=14),
    in_place=st.sampled_from([COPIED, IN_PLACE, 40]),
    budget=st.sampled_from([0, 60_000, BUDGET, 10 * BUDGET]),
)
def test_whatever_comes_between_a_response_is_that_of_a_plain_forward(
    story: list[Any], in_place: int | None, budget: int
) -> None:
    """Sessions that grow, branch, run at once, are cancelled, fail or are evicted; weights that change."""
    house = House(in_place, budget=budget)
    everyone: list[Said] = []
    texts: list[list[int]] = [list(range(4, 54)), list(range(4, 30))]
    version = 0
    for what, *how in story:
        if what == "ask":
            text, cut, more, times = how
            source = texts[-1 - text % len(texts)]
            prompt = [*source[: max(1, len(source) - cut)], *more][:200]
            made = [house.ask(prompt, seed=seed) for seed in range(times)]
            everyone += made
            texts.append([*prompt, *more])
        elif what == "ticks":
            house.ticks(how[0])
        elif what == "cancel" and everyone:
            house.cancel(everyone[-1 - how[0] % len(everyone)])
        elif what == "poison":
            house.ask([*texts[-1 - how[0] % len(texts)], POISON])
        elif what == "swap" and version < 2:
            version += 1
            house.runner.swap(version, house.modules[version])
        texts += [[*said.prompt, *said.ids] for said in everyone[-1:] if said.given]
    house.finish()
    for said in everyone:
        poisoned = POISON in (*said.prompt, *said.ids)  # a model may sample it too
        assert poisoned or not any(isinstance(step, Exception) for step in said.steps)
        versions = {(step.versions[0], step.cache_version) for step in said.given}
        if not poisoned and len(versions) == 1 and len(set(*versions)) == 1:
            house.check(said)
        assert all(cached is not None and cached <= version for version, cached in versions)
    assert budget == 0 or house.kept.nbytes <= budget
    assert all(not row.users for row in house.kept._owners)
