"""Token ids of a session that only grows, and its turns' responses after hinted prompts."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from afterwit.learning.passes import Row

HINTS = 3


def drawn(random: Random, count: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(random.randrange(vocabulary) for _ in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """How long its parts are, in tokens."""

    turns: int
    system: int
    asked: int
    """Each message of a person or a tool, with the tokens that the template puts around it."""
    said: int
    """Each response."""
    hint: int
    """A hint after the person's words, and the template's beginning of the response."""

    @property
    def tokens(self) -> int:
        return self.system + self.turns * (self.asked + self.said)

    @property
    def tokens_with_hints(self) -> int:
        """Tokens with the hints, if every shared token runs once."""
        return self.tokens + self.turns * HINTS * (self.hint + self.said)

    def times(self, factor: float) -> Session:
        """As many turns, each longer by this factor."""
        parts = (round(part * factor) for part in (self.system, self.asked, self.said, self.hint))
        system, asked, said, hint = parts
        return Session(turns=self.turns, system=system, asked=asked, said=said, hint=hint)

    def rows(self, vocabulary: int) -> tuple[list[Row], list[tuple[Row, ...]]]:
        """Each turn, and its response after each of `HINTS` hinted prompts."""
        random, context = Random(0), drawn(Random(1), self.system, vocabulary)
        students, teachers = [], []
        for _ in range(self.turns):
            prompt = context + drawn(random, self.asked, vocabulary)
            response = drawn(random, self.said, vocabulary)
            hinted = [prompt + drawn(random, self.hint, vocabulary) for _ in range(HINTS)]
            students.append(Row(prompt=prompt, response=response))
            teachers.append(tuple(Row(prompt=each, response=response) for each in hinted))
            context = prompt + response
        return students, teachers
