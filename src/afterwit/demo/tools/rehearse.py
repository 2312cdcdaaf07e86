"""The commands of this world's tasks without a process, because experiments run thousands.

They print and write what they would in the sandbox. Any other command runs there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from afterwit.sandbox import box
from afterwit.sandbox.box import Ran

_SCRIPT = re.compile(r'open\("([a-z][a-z-]*\.out)", "w"\)\.write\("([A-Za-z ]*)"\)\n')
_NAME = re.compile(r"[a-z][a-z-]*\.[a-z]+")


def confined(argv: Sequence[str], root: Path, weakness: Callable[[], str | None] = box.weakness) -> Ran:
    """As `box.run` where that isolates commands, else as `run_nothing`: a model writes them."""
    return box.run(argv, root) if weakness() is None else run_nothing(argv, root)


def run(argv: Sequence[str], root: Path) -> Ran:
    """As `confined`."""
    return known(argv, root) or confined(argv, root)


def run_nothing(argv: Sequence[str], root: Path) -> Ran:
    """As `run`, but no process ever starts: any other command is not found."""
    return known(argv, root) or Ran(status=127, output=f"{argv[0] if argv else ''}: not found")


def known(argv: Sequence[str], root: Path) -> Ran | None:
    """The outcome of a command of the tasks; None for any other."""
    match list(argv):
        case ["grep", "-xF", line, name] if _is_file(root, name):
            found = sum(held == line for held in (root / name).read_text().splitlines())
            return Ran(status=0 if found else 1, output=f"{line}\n" * found)
        case ["test", "-e", name] if _NAME.fullmatch(name):
            return _tested((root / name).exists())
        case ["test", "!", "-e", name] if _NAME.fullmatch(name):
            return _tested(not (root / name).exists())
        case ["python" | "python3", name] if _is_file(root, name):
            if script := _SCRIPT.fullmatch((root / name).read_text()):
                (root / script[1]).write_text(script[2])
                return Ran(status=0, output="")
    return None


def _is_file(root: Path, name: str) -> bool:
    return _NAME.fullmatch(name) is not None and (root / name).is_file()


def _tested(holds: bool) -> Ran:
    return Ran(status=0 if holds else 1, output="")
