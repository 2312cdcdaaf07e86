"""The tasks of the tools world (request, starting files, executable checks), and the owner's rules."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from afterwit.demo.words import NOUNS, Speech, Split, drawn, stem, wordings_in
from afterwit.demo.world import Task

WORDINGS = wordings_in(Path(__file__).parent)
SPEECH = Speech(wordings=WORDINGS)
RULES = ("read_first", "dry_run", "backup", "python3", "relative")
IN_WORDS = {
    "read_first": "Read a file before you edit it.",
    "dry_run": "Try a delete with dry_run before you really delete.",
    "backup": "Copy an existing file before you overwrite it.",
    "python3": "Run scripts with python3, not with python.",
    "relative": "Give every path relative to the project's folder.",
}
GUARDED = {"read_first": "edit", "dry_run": "delete", "backup": "write", "python3": "run"}
_REQUESTS = WORDINGS["requests"]


def _edit(split: Split, rng: Random) -> Task:
    file, key, old, new, text = stem(split, rng) + rng.choice((".cfg", ".ini")), "", "", "", ""
    while not old or text.count(old) != 1:
        key, old, new, *other = rng.sample(NOUNS, 5)
        lines = [f"{key} = {old}", " = ".join(other)]
        text = "\n".join(rng.sample(lines, 2)) + "\n"
    return _task(
        "edit",
        _say("edit", split, rng, f=file, a=old, b=new),
        split,
        rng,
        subject={"file": file, "old": old, "new": new},
        files={file: text},
        rules=("read_first",),
        checks=(("grep", "-xF", f"{key} = {new}", file),),
    )


def _delete(split: Split, rng: Random) -> Task:
    file, other = stem(split, rng) + rng.choice((".log", ".tmp")), stem(split, rng) + ".txt"
    return _task(
        "delete",
        _say("delete", split, rng, f=file),
        split,
        rng,
        subject={"gone": file},
        files={file: rng.choice(NOUNS) + "\n", other: rng.choice(NOUNS) + "\n"},
        rules=("dry_run",),
        checks=(("test", "!", "-e", file), ("test", "-e", other)),
    )


def _overwrite(split: Split, rng: Random) -> Task:
    file, text = stem(split, rng) + ".txt", rng.choice(NOUNS)
    return _task(
        "overwrite",
        _say("overwrite", split, rng, f=file, t=text),
        split,
        rng,
        subject={"target": file, "text": text},
        files={file: rng.choice(NOUNS) + "\n"},
        rules=("backup",),
        checks=(("grep", "-xF", text, file),),
    )


def _run(split: Split, rng: Random) -> Task:
    name, word = stem(split, rng), rng.choice(NOUNS)
    return _task(
        "run",
        _say("run", split, rng, f=f"{name}.py"),
        split,
        rng,
        subject={"script": f"{name}.py"},
        files={f"{name}.py": _script(name, word)},
        rules=("python3",),
        checks=(("grep", "-xF", word, f"{name}.out"),),
    )


def _create(split: Split, rng: Random) -> Task:
    file, text = stem(split, rng) + rng.choice((".txt", ".md")), rng.choice(NOUNS)
    return _task(
        "create",
        _say("create", split, rng, f=file, t=text),
        split,
        rng,
        subject={"new_file": file, "text": text},
        files={},
        rules=(),
        checks=(("grep", "-xF", text, file),),
    )


def _edit_run(split: Split, rng: Random) -> Task:
    name, old, new = stem(split, rng), "", ""
    while not old or _script(name, old).count(old) != 1:
        old, new = rng.sample(NOUNS, 2)
    file = f"{name}.py"
    request = _say("edit", split, rng, f=file, a=old, b=new) + rng.choice((" and run it", ", then run it"))
    return _task(
        "edit_run",
        request,
        split,
        rng,
        subject={"file": file, "old": old, "new": new, "script": file},
        files={file: _script(name, old)},
        rules=("read_first", "python3"),
        checks=(("grep", "-xF", new, f"{name}.out"),),
    )


def _overwrite_delete(split: Split, rng: Random) -> Task:
    file, gone, text = stem(split, rng) + ".txt", stem(split, rng) + ".log", rng.choice(NOUNS)
    request = (
        _say("overwrite", split, rng, f=file, t=text) + rng.choice((" and ", ", then ")) + f"delete {gone}"
    )
    return _task(
        "overwrite_delete",
        request,
        split,
        rng,
        subject={"target": file, "text": text, "gone": gone},
        files={file: rng.choice(NOUNS) + "\n", gone: rng.choice(NOUNS) + "\n"},
        rules=("backup", "dry_run"),
        checks=(("grep", "-xF", text, file), ("test", "!", "-e", gone)),
    )


KINDS: dict[str, Callable[[Split, Random], Task]] = {
    "edit": _edit,
    "delete": _delete,
    "overwrite": _overwrite,
    "run": _run,
    "create": _create,
    "edit_run": _edit_run,
    "overwrite_delete": _overwrite_delete,
}


def draw(split: Split, rng: Random) -> Task:
    """A task of a random kind."""
    return KINDS[rng.choice(tuple(KINDS))](split, rng)


def _task(kind: str, core: str, split: Split, rng: Random, **fields: Any) -> Task:
    opening, closing = (
        drawn(_REQUESTS["openings"], split, rng),
        drawn(_REQUESTS["closings"], split, rng),
    )
    sentence = f"{opening} {core}".strip()
    request = f"{sentence[0].upper()}{sentence[1:]}. {closing}".strip()
    return Task(kind=kind, request=request, **{**fields, "rules": (*fields["rules"], "relative")})


def _say(kind: str, split: Split, rng: Random, **slots: str) -> str:
    return drawn(_REQUESTS[kind], split, rng).format(**slots)


def _text(rng: Random) -> str:
    return rng.choice(NOUNS)


def _script(name: str, word: str) -> str:
    return f'open("{name}.out", "w").write("{word}")\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call as the rules see it; `replaces` when it writes to a file that existed."""

    name: str
    arguments: Mapping[str, Any]
    replaces: bool = False

    @classmethod
    def parse(cls, name: str, arguments: str, *, replaces: bool = False) -> Step:
        """A step from a call's JSON text; anything but an object counts as no arguments."""
        try:
            given = json.loads(arguments)
        except ValueError:
            given = {}
        return cls(name=name, arguments=given if isinstance(given, Mapping) else {}, replaces=replaces)

    def path(self) -> str:
        """The file it acts on, in its relative form."""
        return str(self.arguments.get("path", "")).removeprefix("/work/")


def broken(step: Step, before: Sequence[Step]) -> tuple[str, ...]:
    """The rules this step breaks."""
    same = [earlier for earlier in before if earlier.path() == step.path()]
    found = []
    match step.name:
        case "edit" if not any(earlier.name == "read" for earlier in same):
            found.append("read_first")
        case "delete" if not _dry(step) and not any(_dry(earlier) for earlier in same):
            found.append("dry_run")
        case "write" if step.replaces and not any(earlier.name == "copy" for earlier in same):
            found.append("backup")
        case "run" if _words(step)[:1] == ["python"]:
            found.append("python3")
    if any(word.startswith("/") for word in _paths(step)):
        found.append("relative")
    return tuple(found)


def kept(rules: Sequence[str], steps: Sequence[Step]) -> bool:
    """Whether every rule was kept by doing the guarded thing in the right way. Doing nothing keeps none."""
    wrong = {rule for index, step in enumerate(steps) for rule in broken(step, steps[:index])}
    done = {step.name for step in steps if not _dry(step)}
    return (
        not wrong & set(rules)
        and all(GUARDED.get(rule) in done for rule in rules if rule in GUARDED)
        and bool(steps)
    )


def _dry(step: Step) -> bool:
    return step.name == "delete" and step.arguments.get("dry_run") is True


def _words(step: Step) -> list[str]:
    try:
        return shlex.split(str(step.arguments.get("command", "")))
    except ValueError:
        return []


def _paths(step: Step) -> list[str]:
    return [str(step.arguments.get(key, "")) for key in ("path", "to")] + _words(step)[1:]
