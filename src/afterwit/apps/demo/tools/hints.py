"""Hints about the house rules: the sentences the demo's judges write, and a grammar of others for
pretraining.
"""

from collections.abc import Sequence
from random import Random

from afterwit.apps.demo.tools.words import complaint
from afterwit.apps.demo.world import Split

HINTS: dict[str, tuple[str, ...]] = {
    "read_first": ("Call read on the file before edit.", "Read the file with read, and only then edit it."),
    "dry_run": (
        "Call delete with dry_run true before the real delete.",
        "Delete with dry_run first, then for real.",
    ),
    "backup": (
        "Copy the file to a .bak file before write.",
        "Make a .bak copy with copy, and only then write.",
    ),
    "python3": ("Run the script with python3, not python.", "Put python3 before the script in run."),
    "relative": (
        "Give the relative path, without /work.",
        "Write to the plain file name, with no /work before it.",
    ),
}

_FRAMES = (
    "{h}",
    "{h} {c}",
    "You should {d}.",
    "It would have been better to {d}.",
    "{c} {h}",
    "Always {d}.",
    "The user wants you to {d}.",
    "Here, {d}.",
    "Next time {d}.",
    "The right way is to {d}.",
    "Please {d}.",
)
_CONTEXTS = (
    "That is the house rule.",
    "The owner wants it.",
    "This comes first.",
    "Do not forget it.",
    "Keep to this.",
    "In this workspace:",
    "For this task:",
)
_DEEDS: dict[str, tuple[str, ...]] = {
    "read_first": (
        "read the file before you edit it",
        "look at the file first and then edit",
        "open the file with read before the change",
        "read first and edit second",
        "see the contents before an edit",
        "use read on the file before you touch it",
    ),
    "dry_run": (
        "do a dry run before you delete",
        "try the delete dry first",
        "delete with dry_run first",
        "set dry_run to true the first time",
        "use dry_run before the real delete",
        "show what would be deleted first",
    ),
    "backup": (
        "make a backup before you overwrite",
        "copy the file to .bak first",
        "keep a copy of the old file",
        "back up the file before you write",
        "copy first and write second",
        "save the old text as .bak",
    ),
    "python3": (
        "use python3 to run it",
        "take python3 and not python",
        "run scripts with python3",
        "start it with python3",
        "write python3 in the command",
        "call python3",
    ),
    "relative": (
        "use a relative path",
        "leave out /work",
        "give the path without /work",
        "use the plain name",
        "not use an absolute path",
        "take the relative path",
    ),
}


def official(rules: Sequence[str], rng: Random) -> str:
    """The hint a judge of the demo writes about these rules."""
    return " ".join(rng.choice(HINTS[rule]) for rule in rules)


def worded(rules: Sequence[str], file: str, split: Split, rng: Random) -> str:
    """A hint of any origin: the judge's sentence, the grammar's, or the person's own words."""
    origin = rng.random()
    if origin < 0.5:
        return official(rules, rng)
    if origin < 0.75:
        return " ".join(_framed(rule, rng) for rule in rules)
    return complaint(rules, file, split, rng)


def _framed(rule: str, rng: Random) -> str:
    frame = rng.choice(_FRAMES)
    sentence = frame.format(h=rng.choice(HINTS[rule]), d=rng.choice(_DEEDS[rule]), c=rng.choice(_CONTEXTS))
    return sentence[0].upper() + sentence[1:]
