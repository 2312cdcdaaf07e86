"""A judge made of rules over the prompt's text: it reads what a person said as a stranger would.

It answers the prompts of `wire.judge_short` in a judge's own words, so it can stand wherever a model does.
It knows the owner's rules by the words any owner would use, never by the grammar from which the simulated
people speak.
"""

import re
from collections.abc import Mapping, Sequence

_BLOCK = re.compile(r"<(request|response|next \w+)>\n(.*?)\n</\w+>", re.DOTALL)
_POSITIVE = re.compile(
    r"\b(yes|thanks?|thank you|great|perfect|nice|good|well done|exactly|wonderful|super|fine|right|works"
    r"|happy|like|love|excellent|lovely|wanted|done here|move on|next)\b"
)
_FAILED = re.compile(r"\b(check|fails?|failed|gives|wrong|does not|did not|is not)\b.*:|\bstill wrong\b")
_ABOUT = {
    "python3": re.compile(r"\bpython\b|python ?3|\bthe 3\b"),
    "dry_run": re.compile(r"\bdry\b|dry.run|would (be deleted|go)|rehears"),
    "backup": re.compile(
        r"back.?up|\bcop(y|ied|ies)\b|\.bak\b|\b(old|previous) (text|one|version|file)\b"
        r"|\bkeep (a|the|your)\b"
    ),
    "read_first": re.compile(
        r"\b(read|reading|look|looked|looking|open|opened|see|seen|blind|contents|view|inspect)\b"
    ),
    "relative": re.compile(r"\brelative\b|\babsolute\b|/work\b|whole path|\bpath\b|plain name|name only"),
}
_HINTS = {
    "read_first": "Call read on the file before edit.",
    "dry_run": "Call delete with dry_run true before the real delete.",
    "backup": "Copy the file to a .bak file before write.",
    "python3": "Run the script with python3, not python.",
    "relative": "Give the relative path, without /work.",
}
_GUARDS = {
    "read_first": ("edit",),
    "dry_run": ("delete",),
    "backup": ("write",),
    "python3": ("run",),
    "relative": ("edit", "delete", "write", "run", "read", "copy"),
}


def answer(messages: Sequence[Mapping[str, str]]) -> str:
    """The judge's text for one evaluation or hint prompt."""
    blocks = _BLOCK.findall(messages[-1]["content"])
    response = next((text for kind, text in blocks if kind == "response"), "")
    after = [(kind.removeprefix("next "), text.lower()) for kind, text in blocks if kind.startswith("next")]
    if "HINT_START" in messages[0]["content"]:
        return _hint(response, after)
    return rf"\boxed{{{_reward(response, after)}}}"


def _reward(response: str, after: Sequence[tuple[str, str]]) -> int:
    person = _person(after)
    if not person:
        return -1 if any(text.startswith("error") for _, text in after) else int(bool(after))
    if _FAILED.search(person) or _complaints(response, person):
        return -1
    return 1 if _POSITIVE.search(person) else 0


def _hint(response: str, after: Sequence[tuple[str, str]]) -> str:
    found = _complaints(response, _person(after))
    if not found:
        return r"\boxed{-1}"
    return rf"\boxed{{1}} [HINT_START]{' '.join(_HINTS[rule] for rule in found)}[HINT_END]"


def _person(after: Sequence[tuple[str, str]]) -> str:
    return " ".join(text for role, text in after if role == "user")


def _complaints(response: str, person: str) -> list[str]:
    """The rules a person speaks of that this response could have broken."""
    tool = response.split(" ", 1)[0]
    return [rule for rule, words in _ABOUT.items() if tool in _GUARDS[rule] and words.search(person)]
