"""The section `placement`: how many cards each part has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afterwit.core.ranges import at_least, one_of_its_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """How many cards of a machine each part has. `afterwit plan` computes with it; if the section is there,
    `afterwit up` starts all parts so."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: no part gets a card. The numbers below then count servers and processes, which all share the
    machine's memory."""
    policy: int = 1
    """Cards of the engines that serve, shared out evenly over the servers of `engine.url`. 0: they are on
    other machines."""
    judge: int = 0
    """Cards of the judge's server at `judge.url`. 0: it is elsewhere, or the served model judges."""
    teacher: int = 0
    """Cards of the teacher's server at `learner.teacher_url`. 0: it is elsewhere, or the learner holds it."""
    learner: int = 0
    """Cards of the learner, one for each of `learner.processes`. 0: it shares the policy's card."""
    judge_model: str | None = None
    """Folder or hub id of the model that the judge's server loads. Not given: the served model."""
    teacher_model: str | None = None
    """Folder or hub id of the model that the teacher's server loads. Not given: the served model."""
    context: int = 32_768
    """Tokens of the longest request: every engine has room for its keys and values, or for the model's own
    context if that is shorter."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 0, "policy", "judge", "teacher", "learner")
        at_least(self, 1, "context")

    @property
    def cards(self) -> int:
        """Of all parts."""
        return self.policy + self.judge + self.teacher + self.learner
