"""Words of people, models and tools: partly the same in many sessions, as in life."""

from __future__ import annotations

from random import Random

_NOUNS_TEXT = "build parser test server config cache table route index file branch query log script page"
_VERBS_TEXT = "fix check explain rename run move split merge trace measure update remove review list"
_WORDS_TEXT = (
    "the of in after before under first last with without a new old small large fast slow broken green red"
    " value line error call name path user key field type order count time place part result change step"
)
_NOUNS, _VERBS, _WORDS = _NOUNS_TEXT.split(), _VERBS_TEXT.split(), _WORDS_TEXT.split()
_OPENINGS = (
    "Hi",
    "Please fix the failing tests",
    "Run the greeting command and tell me what it prints",
    "Hello, can you help me with this repository?",
    "continue",
)
_ANSWERS = ("yes", "continue", "No, that is wrong. Do it again.", "Thanks", "go on", "ok")
_REPLIES = ("Done.", "OK.", "I have fixed it.", "All tests pass now.", "What shall I do next?")
_RESULTS = ("ok", "", "(no output)", "Success", "hello-from-tool")
COMMON = 0.25
"""Share of texts that occur in other sessions as well."""


class Words:
    """Draws texts. `spoken` draws what is sampled, so that twins differ in nothing else."""

    def __init__(self, structure: Random, spoken: Random) -> None:
        self._structure, self._spoken = structure, spoken

    def opening(self) -> str:
        return self._common(self._structure, _OPENINGS) or self._task(self._structure)

    def task(self) -> str:
        return self._common(self._structure, _ANSWERS) or self._task(self._structure)

    def reply(self) -> str:
        return self._common(self._spoken, _REPLIES) or _sentence(self._spoken, 6, 30)

    def before_a_call(self) -> str | None:
        return self._spoken.choice([None, None, "Let me look.", _sentence(self._spoken, 4, 10)])

    def thought(self) -> str:
        return _sentence(self._spoken, 5, 15)

    def result(self) -> str:
        return self._common(self._structure, _RESULTS) or _sentence(self._structure, 5, 60)

    def summary(self) -> str:
        return "\n".join(f"## Part {n}\n- {_sentence(self._spoken, 12, 30)}" for n in range(1, 4))

    def title(self) -> str:
        return _sentence(self._spoken, 3, 5)

    def arguments(self) -> dict[str, str | int]:
        rng = self._spoken
        drawn: dict[str, str | int] = {"path": f"src/{rng.choice(_NOUNS)}_{rng.randrange(100)}.py"}
        if rng.random() < 0.5:
            drawn["lines"] = rng.randrange(200)
        if rng.random() < 0.3:
            drawn["text"] = _sentence(rng, 3, 12) + " – naïve “text”"
        return drawn

    def _task(self, rng: Random) -> str:
        return f"{rng.choice(_VERBS).capitalize()} the {rng.choice(_NOUNS)}: {_sentence(rng, 3, 20)}"

    def _common(self, rng: Random, texts: tuple[str, ...]) -> str | None:
        """One of `texts` in a share of the draws. Both draws are made either way."""
        text, drawn = rng.choice(texts), rng.random()
        return text if drawn < COMMON else None


def _sentence(rng: Random, fewest: int, most: int) -> str:
    words = [rng.choice(_WORDS + _NOUNS) for _ in range(rng.randint(fewest, most))]
    return " ".join(words).capitalize() + f" {rng.randrange(1000)}."
