"""A range check names the setting, its value and the bound, and lets nothing pass that is not a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from afterwit.ranges import above, at_least, at_most, below, one_of_its_choices, within


@dataclass(frozen=True, slots=True)
class Section:
    share: float | None = 0.5
    way: Literal["plain", "fused"] = "fused"


CHECKS = {
    "at least 1": lambda section: at_least(section, 1, "share"),
    "at most 1": lambda section: at_most(section, 1, "share"),
    "above 0": lambda section: above(section, 0, "share"),
    "below 1": lambda section: below(section, 1, "share"),
    "between 0 and 1": lambda section: within(section, 0, 1, "share"),
}
REFUSED = {"at least 1": 0.5, "at most 1": 1.5, "above 0": 0.0, "below 1": 1.0, "between 0 and 1": 1.5}
TAKEN = {"at least 1": 1.0, "at most 1": 1.0, "above 0": 0.1, "below 1": 0.9, "between 0 and 1": 1.0}


@pytest.mark.parametrize("bound", sorted(CHECKS))
def test_a_value_beyond_its_bound_is_refused_with_both(bound: str) -> None:
    with pytest.raises(ValueError, match=f"share is {REFUSED[bound]}, but must be {bound}"):
        CHECKS[bound](Section(share=REFUSED[bound]))
    CHECKS[bound](Section(share=TAKEN[bound]))


@pytest.mark.parametrize("value", [2**53 + 1, 10**20, 10**400])
def test_a_whole_number_that_no_database_can_hold_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match=r"\Ashare must be at most 9007199254740992\Z"):
        at_least(Section(share=value), 1, "share")


@pytest.mark.parametrize("bound", sorted(CHECKS))
def test_what_is_not_a_number_never_passes_and_what_is_not_given_always_does(bound: str) -> None:
    with pytest.raises(ValueError, match="share is nan"):
        CHECKS[bound](Section(share=math.nan))
    CHECKS[bound](Section(share=None))


def test_a_choice_that_does_not_exist_is_refused_with_those_that_do() -> None:
    one_of_its_choices(Section(way="plain"))
    with pytest.raises(ValueError, match="way is 'slow', but must be one of plain, fused"):
        one_of_its_choices(Section(way="slow"))  # type: ignore[arg-type]
