"""The rule judge of the tools world: it knows the owner's rules by the words any owner would use."""

import re
from collections.abc import Sequence

from afterwit.apps.demo.judge import APPROVING, RuleJudge

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


def _could_break(rule: str, response: str) -> bool:
    return response.split(" ", 1)[0] in _GUARDS[rule]


def _hint(rules: Sequence[str]) -> str:
    return " ".join(_HINTS[rule] for rule in rules)


JUDGE = RuleJudge(
    about={
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
    },
    could_break=_could_break,
    hint=_hint,
    failed=re.compile(r"\b(check|fails?|failed|gives|wrong|does not|did not|is not)\b.*:|\bstill wrong\b"),
    positive=re.compile(APPROVING),
)
