"""What all worlds share: a person's last words on a task, and what judges make of what was said."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from afterwit.apps.demo.judge import RuleJudge
from afterwit.apps.demo.speech.phrases import Phrases
from afterwit.apps.demo.world import Split, Task


class Spoken:
    """The talking half of a world; the world gives the words."""

    __slots__ = ()
    afterwards: ClassVar[Phrases]
    judges_words: ClassVar[Mapping[str, Sequence[str]]]
    """By rule, the sentences in which a judge speaks of it."""
    rule_judge: ClassVar[RuleJudge]

    def fail(self, task: Task, output: str, split: Split, rng: Random) -> str:
        """What is wrong in itself, with what shows it."""
        return self.afterwards.failure(output, split, rng)

    def approve(self, task: Task, split: Split, rng: Random) -> str:
        """Thanks."""
        return self.afterwards.approval(split, rng)

    def rules_named_in(self, hint: str) -> set[str]:
        """The rules whose sentence is in the hint."""
        spoken = hint.lower()
        return {
            rule for rule, known in self.judges_words.items() if any(one.lower() in spoken for one in known)
        }

    def hint(self, rules: Sequence[str]) -> str:
        """What the rule judge says of these rules."""
        return self.rule_judge.hint(rules)

    def judge(self, prompt: Sequence[Mapping[str, str]]) -> str:
        """The rules over the prompt's text."""
        return self.rule_judge(prompt)
