"""How often a judge is right about what a world's person says, on cases with known truth."""

from collections.abc import Callable, Sequence
from statistics import fmean

from afterwit.apps.demo.world import LabelledCase, World
from afterwit.core.judging.voting import parse_evaluation, parse_hint
from afterwit.wire.judge import short_prompts as judge_short

AskAll = Callable[[Sequence[list[dict[str, str]]]], Sequence[str]]
"""Prompts in, the judge's words out, in order."""


def accuracy(answers: AskAll, world: World, judged: Sequence[LabelledCase]) -> dict[str, float]:
    """The share of right rewards and of right hints, by kind of case and in all.

    A hint is right if it speaks of exactly the broken rules; if none was broken, no hint is right.
    """
    asked = [judge_short.prompts(case.request, case.response, case.following) for case in judged]
    rewards = [parse_evaluation(said).value for said in answers([pair[0] for pair in asked])]
    found = [
        _rules(said, case, world)
        for said, case in zip(answers([pair[1] for pair in asked]), judged, strict=True)
    ]
    right = [
        (case.kind, "reward", reward == case.reward) for case, reward in zip(judged, rewards, strict=True)
    ]
    right += [
        (case.kind, "hint", rules == set(case.rules)) for case, rules in zip(judged, found, strict=True)
    ]
    names = sorted({(kind, part) for kind, part, _ in right} | {("all", "reward"), ("all", "hint")})
    return {
        f"{part} {kind}": fmean(good for k, p, good in right if p == part and kind in (k, "all"))
        for kind, part in names
    }


def _rules(said: str, case: LabelledCase, world: World) -> set[str] | None:
    vote = parse_hint(said, [message["content"] for message in case.following], quote_words=8)
    if vote.hint is None:
        return set() if vote.value == -1 else None
    return world.rules_named_in(vote.hint)
