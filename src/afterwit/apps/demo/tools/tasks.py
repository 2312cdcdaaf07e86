"""The tasks of the tools world: request, starting files and executable checks, drawn at random."""

from collections.abc import Callable
from random import Random
from typing import Any

from afterwit.apps.demo.speech.names import NOUNS, stem
from afterwit.apps.demo.world import Split, Task, part

_OPENINGS = (
    "",
    "Please",
    "Now",
    "Next,",
    "",
    "Could you",
    "",
    "Hi,",
    "First,",
    "Ok,",
    "Please",
    "Then",
    "",
    "I need this:",
    "Quick,",
    "Today,",
    "",
    "Hello,",
)
_CLOSINGS = (
    "",
    "",
    "That is all.",
    "Thanks.",
    "",
    "Thank you.",
    "",
    "It is for the team.",
    "No hurry.",
    "",
    "Tell me when it is done.",
    "",
)

_EDIT = (
    'change "{a}" to "{b}" in {f}',
    'in {f}, replace "{a}" by "{b}"',
    'make "{a}" into "{b}" in {f}',
    'in {f}, "{a}" must become "{b}"',
    'replace "{a}" by "{b}" in {f}',
    'in {f}, change "{a}" to "{b}"',
    'turn "{a}" into "{b}" in {f}',
    '{f} says "{a}", make it "{b}"',
    'edit {f} so that "{a}" becomes "{b}"',
    'swap "{a}" for "{b}" in {f}',
    '{f} should not say "{a}" but "{b}"',
    'in {f}, make "{a}" into "{b}"',
    'I do not want "{a}" but "{b}" in {f}',
    'the word "{a}" in {f} must become "{b}"',
    'take "{a}" out of {f} and put "{b}" there',
    'where {f} says "{a}", put "{b}"',
    'change {f}, "{a}" becomes "{b}"',
    'in {f}, swap "{a}" for "{b}"',
)
_DELETE = (
    "delete {f}",
    "remove {f}",
    "get rid of {f}",
    "I no longer need {f}, delete it",
    "{f} can go, remove it",
    "remove the file {f}",
    "throw away {f}",
    "delete the file {f}",
    "{f} is old, delete it",
    "clean up {f}",
    "delete {f}, I no longer need it",
    "get rid of the file {f}",
    "take {f} away",
    "we do not need {f}, remove it",
    "the file {f} must go",
    "{f} is of no use, throw it away",
    "throw away the file {f}",
    "I want {f} gone, remove it",
)
_OVERWRITE = (
    'put "{t}" in {f} in place of the old text',
    'replace the text of {f} by "{t}"',
    'overwrite {f} with "{t}"',
    'the new text of {f} is "{t}"',
    'make "{t}" the new text of {f}',
    'replace all of {f} by "{t}"',
    '{f} should now only say "{t}"',
    'write "{t}" over the old {f}',
    'set the text of {f} to "{t}"',
    'give {f} the new text "{t}"',
    'set {f} to "{t}"',
    'overwrite {f}, new text "{t}"',
    'from now on {f} says "{t}"',
    'I want only "{t}" in {f}',
    'all of {f} must become "{t}"',
    'replace what {f} says by "{t}"',
    'make {f} say only "{t}"',
    'overwrite the text of {f} with "{t}"',
)
_RUN = (
    "run {f}",
    "start {f}",
    "run the script {f}",
    "please execute {f}",
    "execute the script {f}",
    "start the script {f}",
    "let {f} run",
    "execute {f}",
    "run {f} once",
    "start {f} for me",
    "run {f} for me",
    "execute {f} once",
    "I want you to run {f}",
    "the script {f} must run",
    "can you run {f}",
    "we need {f} to run, start it",
    "start {f} once",
    "I want to see {f} run, start it",
)
_CREATE = (
    'make a new file {f} with "{t}"',
    'create {f} with the text "{t}"',
    'save "{t}" as {f}',
    'write "{t}" to a new file {f}',
    'create a file {f} with "{t}"',
    'save "{t}" in a new file {f}',
    'I need a new file {f} with "{t}"',
    'start a new file {f} with the text "{t}"',
    'put "{t}" in a new file {f}',
    'note "{t}" in a new file {f}',
    'create the file {f} with "{t}"',
    'make {f}, a new file with "{t}"',
    'add a file {f} that says "{t}"',
    'I want "{t}" in a new file {f}',
    'there should be a new file {f} with "{t}"',
    'keep "{t}" in a new file {f}',
    'make {f} with the text "{t}"',
    'write a new file {f} that says "{t}"',
)


def _edit(split: Split, rng: Random) -> Task:
    file, key, old, new, text = stem(split, rng) + rng.choice((".cfg", ".ini")), "", "", "", ""
    while not old or text.count(old) != 1:
        key, old, new, *other = rng.sample(NOUNS, 5)
        lines = [f"{key} = {old}", " = ".join(other)]
        text = "\n".join(rng.sample(lines, 2)) + "\n"
    return _task(
        "edit",
        _say(_EDIT, split, rng, f=file, a=old, b=new),
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
        _say(_DELETE, split, rng, f=file),
        split,
        rng,
        subject={"gone": file},
        files={file: _text(rng) + "\n", other: _text(rng) + "\n"},
        rules=("dry_run",),
        checks=(("test", "!", "-e", file), ("test", "-e", other)),
    )


def _overwrite(split: Split, rng: Random) -> Task:
    file, text = stem(split, rng) + ".txt", _text(rng)
    return _task(
        "overwrite",
        _say(_OVERWRITE, split, rng, f=file, t=text),
        split,
        rng,
        subject={"target": file, "text": text},
        files={file: _text(rng) + "\n"},
        rules=("backup",),
        checks=(("grep", "-xF", text, file),),
    )


def _run(split: Split, rng: Random) -> Task:
    name, word = stem(split, rng), rng.choice(NOUNS)
    return _task(
        "run",
        _say(_RUN, split, rng, f=f"{name}.py"),
        split,
        rng,
        subject={"script": f"{name}.py"},
        files={f"{name}.py": _script(name, word)},
        rules=("python3",),
        checks=(("grep", "-xF", word, f"{name}.out"),),
    )


def _create(split: Split, rng: Random) -> Task:
    file, text = stem(split, rng) + rng.choice((".txt", ".md")), _text(rng)
    return _task(
        "create",
        _say(_CREATE, split, rng, f=file, t=text),
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
    request = _say(_EDIT, split, rng, f=file, a=old, b=new) + rng.choice((" and run it", ", then run it"))
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
    file, gone, text = stem(split, rng) + ".txt", stem(split, rng) + ".log", _text(rng)
    request = (
        _say(_OVERWRITE, split, rng, f=file, t=text) + rng.choice((" and ", ", then ")) + f"delete {gone}"
    )
    return _task(
        "overwrite_delete",
        request,
        split,
        rng,
        subject={"target": file, "text": text, "gone": gone},
        files={file: _text(rng) + "\n", gone: _text(rng) + "\n"},
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
    opening, closing = rng.choice(part(_OPENINGS, split)), rng.choice(part(_CLOSINGS, split))
    sentence = f"{opening} {core}".strip()
    request = f"{sentence[0].upper()}{sentence[1:]}. {closing}".strip()
    return Task(kind=kind, request=request, **{**fields, "rules": (*fields["rules"], "relative")})


def _say(cores: tuple[str, ...], split: Split, rng: Random, **slots: str) -> str:
    return rng.choice(part(cores, split)).format(**slots)


def _text(rng: Random) -> str:
    return rng.choice(NOUNS)


def _script(name: str, word: str) -> str:
    return f'open("{name}.out", "w").write("{word}")\n'
