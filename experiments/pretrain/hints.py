"""Hints for the corpora: in a judge's sentences, in a grammar's, or in a person's own words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from afterwit.demo.chat.world import SPEECH as CHAT_SPEECH
from afterwit.demo.chat.world import joined
from afterwit.demo.tools.tasks import SPEECH as TOOLS_SPEECH
from afterwit.demo.words import Speech, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Hints about one world's rules."""

    speech: Speech
    join: Callable[[Sequence[str]], str]
    """A judge's sentences as one text."""
    judges: float
    """Share of hints in a judge's words."""
    grammars: float
    """Share of hints in a judge's or the grammar's words; the rest are a person's own."""
    quotes: bool
    """Whether the grammar's frames have a slot for a judge's sentence."""

    def official(self, rules: Sequence[str], rng: Random) -> str:
        """The hint that a judge of the demo writes about these rules."""
        return self.join([rng.choice(self.speech.wordings["judge_hints"][rule]) for rule in rules])

    def worded(self, rules: Sequence[str], about: str, split: Split, rng: Random) -> str:
        """A hint of any origin."""
        origin = rng.random()
        if origin < self.judges:
            return self.official(rules, rng)
        if origin < self.grammars:
            return " ".join(self._framed(rule, rng) for rule in rules)
        return self.speech.complaint(rules, about, split, rng)

    def _framed(self, rule: str, rng: Random) -> str:
        words = self.speech.wordings
        frame = rng.choice(words["hint_frames"]["sentences"])
        quoted = {"h": rng.choice(words["judge_hints"][rule])} if self.quotes else {}
        deed = rng.choice(words["hint_deeds"][rule])
        said = frame.format(**quoted, d=deed, c=rng.choice(words["hint_frames"]["contexts"]))
        return str(said[0].upper() + said[1:])


TOOLS = Hints(speech=TOOLS_SPEECH, join=" ".join, judges=0.5, grammars=0.75, quotes=True)
CHAT = Hints(speech=CHAT_SPEECH, join=joined, judges=0.4, grammars=0.6, quotes=False)
