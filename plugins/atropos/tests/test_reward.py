"""The reward by the published steps."""

from __future__ import annotations

import pytest

from afterwit_atropos.reward import Reward, RewardWeights, efficiency, tool_usage


@pytest.mark.parametrize(
    ("turns", "worth"), [(0, 1.0), (3, 1.0), (4, 0.8), (7, 0.8), (8, 0.5), (11, 0.5), (12, 0.2), (15, 0.2)]
)
def test_few_turns_are_worth_more(turns: int, worth: float) -> None:
    assert efficiency(turns, 15) == worth


@pytest.mark.parametrize(
    ("tools", "worth"),
    [
        ((), 0.0),
        (("read_file",), 0.3),
        (("write_file",), 0.3),
        (("terminal",), 0.6),
        (("terminal", "read_file"), 0.6),
        (("terminal", "write_file"), 1.0),
        (("patch", "terminal"), 1.0),
    ],
)
def test_the_terminal_and_a_file_written_are_worth_most(tools: tuple[str, ...], worth: float) -> None:
    assert tool_usage(tools) == worth


def test_the_published_weights_give_one_to_what_is_right_quick_and_uses_its_tools() -> None:
    rest = {"efficiency": efficiency(2, 15), "tool_usage": tool_usage({"terminal", "write_file"})}
    best = RewardWeights().reward(correctness=1.0, **rest)
    assert best == Reward(correctness=1.0, efficiency=1.0, tool_usage=1.0, total=1.0)
    assert best.passed
    cheat = RewardWeights().reward(correctness=0.0, **rest)
    assert cheat.total == pytest.approx(0.3)
    assert not cheat.passed


def test_the_total_stays_in_its_range() -> None:
    heavy = RewardWeights(correctness=1.0, efficiency=1.0, tool_usage=1.0)
    assert heavy.reward(correctness=1.0, efficiency=1.0, tool_usage=0.6).total == 1.0
    with pytest.raises(ValueError, match=r"efficiency must be between 0 and 1, not -0\.1"):
        RewardWeights(efficiency=-0.1)
