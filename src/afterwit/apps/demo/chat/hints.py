"""Hints about the person's likes: the sentence the demo's judges write, and a grammar of others for
pretraining.
"""

from collections.abc import Sequence
from random import Random

from afterwit.apps.demo.chat.words import complaint
from afterwit.apps.demo.world import Split

HINTS: dict[str, tuple[str, ...]] = {
    "short": ("keep it short", "say it in few words"),
    "plain": ("choose plain words", "leave out stiff words"),
    "friendly": ("greet them warmly", "begin with a warm greeting"),
    "steps": ("give numbered steps", "put the steps in a numbered list"),
}

_FRAMES = (
    "{d}.",
    "You should {d}.",
    "It would have been better to {d}.",
    "{c} {d}.",
    "Always {d}.",
    "The user wants you to {d}.",
    "Here, {d}.",
    "Next time {d}.",
    "The right way is to {d}.",
    "Please {d}.",
    "{d}. {c}",
)
_CONTEXTS = (
    "This person likes it so.",
    "It matters to them.",
    "Do not forget it.",
    "Keep to this.",
    "For this person:",
    "In every answer:",
)
_DEEDS: dict[str, tuple[str, ...]] = {
    "short": (
        *HINTS["short"],
        "be brief",
        "make the answer shorter",
        "write less",
        "use fewer words",
        "give a short answer",
        "cut the text down",
    ),
    "plain": (
        *HINTS["plain"],
        "use simple words",
        "talk like a normal person",
        "avoid formal words",
        "write plainly",
        "use everyday words",
        "not sound stiff",
    ),
    "friendly": (
        *HINTS["friendly"],
        "say hello first",
        "be friendly",
        "add a warm word",
        "greet the person",
        "start with a greeting",
        "be kind and warm",
    ),
    "steps": (
        *HINTS["steps"],
        "number the steps",
        "write a list with numbers",
        "put each step on its own line",
        "go step by step",
        "make it a numbered list",
        "list the steps",
    ),
}


def official(rules: Sequence[str], rng: Random) -> str:
    """The hint a judge of the demo writes about these rules: one sentence."""
    return sentence([rng.choice(HINTS[rule]) for rule in rules])


def sentence(deeds: Sequence[str]) -> str:
    """Deeds as one sentence: "A, b and c."."""
    *others, last = deeds
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."


def worded(rules: Sequence[str], thing: str, split: Split, rng: Random) -> str:
    """A hint of any origin: the judge's sentence, the grammar's, or the person's own words."""
    origin = rng.random()
    if origin < 0.4:
        return official(rules, rng)
    if origin < 0.6:
        return " ".join(_framed(rule, rng) for rule in rules)
    return complaint(rules, thing, split, rng)


def _framed(rule: str, rng: Random) -> str:
    said = rng.choice(_FRAMES).format(d=rng.choice(_DEEDS[rule]), c=rng.choice(_CONTEXTS))
    return said[0].upper() + said[1:]
