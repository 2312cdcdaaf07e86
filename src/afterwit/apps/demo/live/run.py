"""The course of a run: people's tasks one after another, and the policy measured in between."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from openai import OpenAI

from afterwit.apps.demo.live.system import LiveSystem
from afterwit.apps.demo.people import (
    MODEL,
    SIDE,
    Agent,
    Interaction,
    Manner,
    Score,
    evaluate,
    run_interaction,
)
from afterwit.apps.demo.world import Split, Task, World
from afterwit.core.promotion import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The policy on the held-out tasks; `seconds` since the start of the command."""

    interactions: int
    seconds: float
    preference: float
    task_success: float


class Observer(Protocol):
    """Who is told how a run goes."""

    def measuring(self) -> None: ...

    def measured(self, point: Measurement, version: int) -> None: ...

    def task_done(self, number: int, interaction: Interaction, version: int) -> None: ...


@dataclass(slots=True, kw_only=True)
class Run:
    """A run on a live system.

    `split` is the part of the wordings that the people use; the tasks that measure are of another.
    """

    system: LiveSystem
    world: World
    split: Split
    manner: Manner = Manner.FULL
    held_out: Sequence[Task]
    seed: int
    measured: Sequence[int]
    """Interactions after which the policy is measured, beside the start and the end."""
    began: float
    observer: Observer
    interactions: list[Interaction] = field(default_factory=list)
    points: list[Measurement] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    decisions: list[tuple[int, Event]] = field(default_factory=list)
    """What was decided about versions, and after how many interactions."""

    def play(self, interactions: int) -> None:
        """Let people give this many tasks; measure at the start, along the way and at the end."""
        rng = Random(self.seed)
        with OpenAI(base_url=self.system.url, api_key="demo", timeout=120, max_retries=0) as client:
            self._measure(client)
            for number in range(1, interactions + 1):
                one = self._interact(client, number, rng)
                self.observer.task_done(number, one, self.system.version())
                if number in self.measured or number == interactions:
                    self._measure(client)

    def _interact(self, client: OpenAI, number: int, rng: Random) -> Interaction:
        """One task of one person; the next person meets what was learned from it."""
        headers = {"X-Session-Id": f"person-{self.seed}-{number}"}
        agent = Agent(client=client, model=MODEL, headers=headers)
        one = run_interaction(
            agent, self.world, self.world.task(self.split, rng), self.split, rng, self.manner
        )
        self.interactions.append(one)
        self.system.wait_until_learned()
        events = self.system.store(lambda store: store.events())
        self.decisions += [(number, event) for event in events[len(self.decisions) :]]
        return one

    def _measure(self, client: OpenAI) -> None:
        self.observer.measuring()
        agent = Agent(client=client, model=MODEL, headers=SIDE)
        score = evaluate(agent, self.world, self.held_out)
        point = Measurement(
            interactions=len(self.interactions),
            seconds=round(time.monotonic() - self.began, 1),
            preference=score.preference,
            task_success=score.task_success,
        )
        self.points.append(point)
        self.scores.append(score)
        self.observer.measured(point, self.system.version())
