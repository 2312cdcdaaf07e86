"""Homes whose learner is verl's engine."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.chat_format.render import Renderer
from afterwit.learning.passes import ALONE, Ranks
from afterwit.learning.trainer import Trainer
from afterwit_hosts.verl.__main__ import in_verl
from tests.learning.stage.learning import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class InVerl(Place):
    """A home that verl trains."""

    def trainer(self, ranks: Ranks = ALONE) -> Trainer:
        from afterwit_hosts.verl.policy import Options
        from afterwit_hosts.verl.trainer import VerlTrainer

        return VerlTrainer(
            self.versions,
            Renderer.load(self.base),
            settings=self.settings,
            objective=self.objective,
            ranks=ranks,
            options=Options(),
        )


def with_verl(place: Place, processes: int = 1) -> InVerl:
    """The same home, trained by verl."""
    settings = in_verl(place.settings, processes)
    return InVerl(home=place.home, base=place.base, settings=settings, objective=place.objective)
