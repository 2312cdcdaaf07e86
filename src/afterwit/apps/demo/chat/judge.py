"""The rule judge of the chat world: it knows what people may dislike in an answer by the words for it."""

import re
from collections.abc import Sequence

from afterwit.apps.demo.judge import APPROVING, RuleJudge

_HINTS = {
    "short": "keep it short",
    "plain": "choose plain words",
    "friendly": "greet them warmly",
    "steps": "give numbered steps",
}


def _could_break(rule: str, response: str) -> bool:
    return rule != "steps" or re.search(r"^\s*1[.)] ", response, re.MULTILINE) is None


def _hint(rules: Sequence[str]) -> str:
    *others, last = (_HINTS[rule] for rule in rules)
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."


JUDGE = RuleJudge(
    about={
        "short": re.compile(
            r"\b(long|longer|short|shorter|brief|briefly|enough|less|fewer|essay|length|wordy|half of it"
            r"|half way|(too|that|(?<!thank you )so) (much|many)|on and on|cut|nothing more|the rest)\b"
        ),
        "plain": re.compile(
            r"\b(plain|stiff|formal|fancy|simpl[ey]r?|everyday|big words|hard|offices?|lawyers?|law|bank"
            r"|form|jargon|normal|(talks|says it) like|like a book|look up|pompous)\b"
        ),
        "friendly": re.compile(
            r"\b(friend|friendly|warm|warmth|warmer|cold|hello|hi|greet|greeting|kind|cross|polite|smile"
            r"|like me)\b"
        ),
        "steps": re.compile(r"\b(steps?|numbers?|numbered|list|listed|one, two)\b"),
    },
    could_break=_could_break,
    hint=_hint,
    failed=re.compile(
        r"\b(wrong|not right|my notes say|is not in|does not say|did not say|it is|answer has|i miss)\b"
    ),
    positive=re.compile(
        APPROVING + r"|\b(lovely|got it|helps|know|needed|said|nicely|put)\b|\?$|\btell me\b"
    ),
)
