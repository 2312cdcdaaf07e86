"""What this person likes in an answer: pure functions over its text.

| rule | kept when |
| --- | --- |
| short | the answer has at most `MOST_WORDS` words |
| plain | none of its words is stiff (`STIFF`) |
| friendly | it has a greeting or another warm word (`WARM`) |
| steps | how-to questions only: the steps are lines numbered 1, 2, ... |
"""

import re
from collections.abc import Sequence

RULES = ("short", "plain", "friendly", "steps")
MOST_WORDS = 18
IN_WORDS = {
    "short": f"Answer in at most {MOST_WORDS} words.",
    "plain": "Use plain words, no stiff ones.",
    "friendly": "Say something warm, such as a greeting.",
    "steps": "Number the steps when you explain how to do something.",
}
_STIFF = """
accordance additional advisable aforementioned ascertain clarification commence commences communication
convenience currently documentation duly endeavour foregoing furnish furthermore henceforth herein hereby
hitherto inform initially inquiry kindly located moreover nevertheless notwithstanding obtain occur occurs
permitted persons possession presently prior proceed provided pursuant reference regarding remain request
require required respective retain retained scheduled sequence situated submit subsequent subsequently
therefore thereof ultimately utilise utilize verified whereas
"""
STIFF = frozenset(_STIFF.split())
WARM = re.compile(
    r"\b(hi\b|hey\b|hello\b|sure[!,]|of course|no problem|no worries|glad|happy to|my pleasure"
    r"|good question|cheers|there you go|here you go|dear friend)"
)
_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")
_NUMBERED = re.compile(r"^\s*(\d+)[.)] +\S", re.MULTILINE)


def broken(answer: str, rules: Sequence[str]) -> tuple[str, ...]:
    """Those of `rules` that the answer breaks, in their order; an answer without a word breaks them all."""
    text = answer.lower()
    words = _WORD.findall(text)
    kept = {
        "short": len(words) <= MOST_WORDS,
        "plain": not STIFF.intersection(words),
        "friendly": WARM.search(text) is not None,
        "steps": _in_steps(text),
    }
    return tuple(rule for rule in rules if not (words and kept[rule]))


def missing(answer: str, facts: Sequence[str]) -> str | None:
    """The first fact that the answer does not tell after the facts before it; None when all are there."""
    text, at = " ".join(answer.lower().split()), 0
    for fact in facts:
        found = re.compile(rf"\b{re.escape(fact.lower())}\b").search(text, at)
        if found is None:
            return fact
        at = found.end()
    return None


def _in_steps(text: str) -> bool:
    numbers = [int(number) for number in _NUMBERED.findall(text)]
    return len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1))
