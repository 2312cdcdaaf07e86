"""A judge made of rules over the prompt's text: it reads what a person said as a stranger would.

It answers the judge's short prompts in a judge's own words, so it can replace a model. A world gives it the
words that any person with such rules would use, never the grammar from which the simulated people speak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from afterwit.demo.world import LabelledCase, World
from afterwit.judging import short_prompts as judge_short
from afterwit.judging.voting import parse_evaluation, parse_hint

Judge = Callable[[Sequence[Mapping[str, str]]], str]
"""A judge prompt in, the judge's words out."""


_BLOCK = re.compile(r"<(request|response|next \w+)>\n(.*?)\n</\w+>", re.DOTALL)


_FAILED = ("error", "failed", "there is no")
"""How a tool's result begins when it did not do what it was called for."""


APPROVING = (
    r"\b(yes|thanks?|thank you|great|perfect|nice|good|well done|exactly|wonderful|super|fine|right|works"
    r"|happy|like|love|excellent|lovely|wanted|done here|move on|next)\b"
)
"""Words of a content person, about anything."""


DISPLEASED = re.compile(
    r"\W*(?:no\b\W*)?(?:(?:that|this|it) is\b\W*)?"
    r"(?:no|wrong|bad|do it differently"
    r"|not (?:right|good|it|like (?:that|this)|(?:what|how|the way) i \w+))\W*"
)
"""All that a person says who is displeased and does not say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleJudge:
    """Rules for one world, all over lower-cased text."""

    about: Mapping[str, re.Pattern[str]]
    """What a person's words look like when they speak of a rule."""
    could_break: Callable[[str, str], bool]
    """Whether the rule could be broken by the response at all: rule, response."""
    hint: Callable[[Sequence[str]], str]
    """The judge's own words on these rules."""
    failed: re.Pattern[str]
    """What a person says of work that is wrong in itself."""
    positive: re.Pattern[str]
    """What shows that all went well."""

    def __call__(self, prompt: Sequence[Mapping[str, str]]) -> str:
        """The judge's text for one evaluation or hint prompt."""
        blocks = _BLOCK.findall(prompt[-1]["content"])
        response = next((text for kind, text in blocks if kind == "response"), "")
        after = [
            (kind.removeprefix("next "), text.lower()) for kind, text in blocks if kind.startswith("next")
        ]
        if "HINT_START" in prompt[0]["content"]:
            return self._hint(response, after)
        return rf"\boxed{{{self._reward(response, after)}}}"

    def _reward(self, response: str, after: Sequence[tuple[str, str]]) -> int:
        person = _person(after)
        if not person:
            return -1 if any(text.startswith(_FAILED) for _, text in after) else int(bool(after))
        if DISPLEASED.fullmatch(person) or self.failed.search(person) or self._complaints(response, person):
            return -1
        return 1 if self.positive.search(person) else 0

    def _hint(self, response: str, after: Sequence[tuple[str, str]]) -> str:
        found = self._complaints(response, _person(after))
        return rf"\boxed{{1}} [HINT_START]{self.hint(found)}[HINT_END]" if found else r"\boxed{-1}"

    def _complaints(self, response: str, person: str) -> list[str]:
        """The rules a person speaks of that this response could have broken."""
        spoken = (rule for rule, words in self.about.items() if words.search(person))
        return [rule for rule in spoken if self.could_break(rule, response)]


def _person(after: Sequence[tuple[str, str]]) -> str:
    return " ".join(text for role, text in after if role == "user")


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
