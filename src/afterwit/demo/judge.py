"""A judge made of rules over the prompt's text: it reads what a person wrote as a stranger would.

It answers the judge's short prompts in a judge's own words, so it can replace a model. A world gives it the
words that any person with such rules would use, never the grammar from which the simulated people speak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Judge = Callable[[Sequence[Mapping[str, str]]], str]
"""A judge prompt in, the judge's words out."""
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
"""The whole message of a person who is displeased and does not say why."""
_BLOCK = re.compile(r"<(request|response|next \w+)>\n(.*?)\n</\w+>", re.DOTALL)
_FAILED = ("error", "failed", "there is no")
"""How a tool's result begins when the call failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleJudge:
    """Rules for one world, all over lower-cased text."""

    about: Mapping[str, re.Pattern[str]]
    """A pattern for each rule that matches a person's words about it."""
    could_break: Callable[[str, str], bool]
    """Whether the rule could be broken by the response at all: rule, response."""
    hint: Callable[[Sequence[str]], str]
    """The judge's own words on these rules."""
    failed: re.Pattern[str]
    """The words of a person whose result is wrong in itself."""
    positive: re.Pattern[str]

    def __call__(self, prompt: Sequence[Mapping[str, str]]) -> str:
        """The judge's text for one evaluation or hint prompt."""
        blocks = _BLOCK.findall(prompt[-1]["content"])
        response = next((text for kind, text in blocks if kind == "response"), "")
        after = [(kind, text.lower()) for kind, text in blocks if kind.startswith("next")]
        person = " ".join(text for kind, text in after if kind == "next user")
        complaints = [
            rule
            for rule, words in self.about.items()
            if words.search(person) and self.could_break(rule, response)
        ]
        if "HINT_START" in prompt[0]["content"]:
            hint = f" [HINT_START]{self.hint(complaints)}[HINT_END]" if complaints else ""
            return rf"\boxed{{{1 if complaints else -1}}}{hint}"
        if not person:
            reward = -1 if any(text.startswith(_FAILED) for _, text in after) else int(bool(after))
        elif DISPLEASED.fullmatch(person) or self.failed.search(person) or complaints:
            reward = -1
        else:
            reward = 1 if self.positive.search(person) else 0
        return rf"\boxed{{{reward}}}"
