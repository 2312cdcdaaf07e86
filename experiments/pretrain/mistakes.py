"""Calls that fail, of the kinds that a tiny model makes: a name half right, an argument left out, a file that
is not there (yet). The model learns the tool's answer and how to go on after it, not the calls.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from afterwit.demo.tools.tasks import ToolStep
from afterwit.demo.tools.world import Workspace
from afterwit.demo.words import NOUNS

MISTAKES = 0.1
"""Share of the calls that a mistaken one comes before."""
AGAIN = 0.2
"""Share of the mistakes that are made twice."""


def before(step: ToolStep, files: Workspace, rng: Random) -> list[ToolStep]:
    """The mistaken calls before a right one, of which every one fails; mostly none."""
    if rng.random() > MISTAKES:
        return []
    found = [mistaken(step, files, rng)]
    if rng.random() < AGAIN:
        found.append(mistaken(step, files, rng))
    return found


def mistaken(step: ToolStep, files: Workspace, rng: Random) -> ToolStep:
    """A call that fails, in the place of a right one."""
    return rng.choice([kind for kind in KINDS if _possible(kind, step, files)])(step, rng)


def _possible(kind: "Mistake", step: ToolStep, files: Workspace) -> bool:
    if kind is _wrong_name:
        return step.name != "write"
    if kind is _too_early:
        return step.name == "write" and not files.exists(str(step.arguments["path"]))
    return kind is not _wrong_text or step.name == "edit"


def _wrong_name(step: ToolStep, rng: Random) -> ToolStep:
    """Of a file that is not there."""
    if step.name == "run":
        program, script = str(step.arguments["command"]).split(" ", 1)
        return _changed(step, command=f"{program} {_other(script, rng)}")
    return _changed(step, path=_other(str(step.arguments["path"]), rng))


def _too_early(step: ToolStep, rng: Random) -> ToolStep:
    """A look at, or a copy of, a file that is only about to be made."""
    path = str(step.arguments["path"])
    if rng.random() < 0.3:
        return ToolStep(name="read", arguments={"path": path})
    return ToolStep(name="copy", arguments={"path": path, "to": f"{path}.bak"})


def _left_out(step: ToolStep, rng: Random) -> ToolStep:
    """An argument that the tool needs is missing."""
    needed = [name for name in step.arguments if name != "dry_run"]
    gone = needed[-1] if len(needed) > 1 or rng.random() < 0.5 else needed[0]
    return ToolStep(name=step.name, arguments={k: v for k, v in step.arguments.items() if k != gone})


def _wrong_text(step: ToolStep, rng: Random) -> ToolStep:
    """A text that is not in the file."""
    return _changed(step, old="-".join(rng.sample(NOUNS, 2)))


def _no_tool(step: ToolStep, rng: Random) -> ToolStep:
    return ToolStep(name=rng.choice(("open", "move", "list", "python", "save")), arguments=step.arguments)


Mistake = Callable[[ToolStep, Random], ToolStep]
KINDS: tuple[Mistake, ...] = (
    _wrong_name,
    _wrong_name,
    _too_early,
    _too_early,
    _left_out,
    _wrong_text,
    _no_tool,
)


def _changed(step: ToolStep, **arguments: Any) -> ToolStep:
    return ToolStep(name=step.name, arguments={**step.arguments, **arguments})


def _other(path: str, rng: Random) -> str:
    """A name that is nearly this one, with the same ending or a wrong one."""
    stem, _, ending = path.rpartition(".")
    parts = stem.split("-")
    kind = rng.random()
    if kind < 0.2:
        return f"{stem}.{rng.choice([each for each in ('txt', 'md', 'log', 'cfg', 'py') if each != ending])}"
    if kind < 0.4 and len(parts) > 1:
        return f"{''.join(parts)}.{ending}"
    if kind < 0.6 and len(parts) > 1:
        return f"{parts[0]}.{ending}"
    parts[rng.randrange(len(parts))] = rng.choice([each for each in NOUNS if each not in parts])
    return f"{'-'.join(parts)}.{ending}"
