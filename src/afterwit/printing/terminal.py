"""The terminal that commands write to. It shows control characters of foreign text without obeying them."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import orjson
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from afterwit.text import counted, one_line

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from afterwit.engines.server.process import EngineProcess

WIDE = 100
"""Columns from which reasons are listed at length."""

SOON_S, AGAIN_S = 2.0, 30.0
"""Seconds of waiting after which a line is printed where there is no terminal, and between two lines of one
step whose parts are counted."""

_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Characters that switch the text's direction."""
_LEFT_OUT = dict.fromkeys(_CONTROLS | _DIRECTIONS)
_ESCAPED = {each: f"\\u{each:04x}" for each in _LEFT_OUT}


def plain(text: str) -> str:
    """A text without escapes, other control characters and changes of direction.

    The text after an escape stays visible; newlines and tabs stay.
    """
    return text.translate(_LEFT_OUT)


class Terminal(Console):
    """A console on which every string is `plain`, without markup or emoji codes.

    Removed characters have no width, so tables and panels keep their shape.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)

    def say(self, text: str | Text, *, style: str | None = None) -> None:
        """Print a line that is not wrapped, however long it is."""
        self.print(text, soft_wrap=True, style=style)


class Working:
    """A step of a command: its words, n of m, the seconds so far, and about how many are left; and under it
    the command's own output."""

    under: RenderableType | None = None

    def __init__(
        self, console: Console | None, soon_s: float = SOON_S, now: Callable[[], float] = time.monotonic
    ) -> None:
        """On a console that is not a terminal, print a step as a line once it has lasted `soon_s` seconds."""
        self._console, self._soon_s, self._now = console, soon_s, now
        self._words, self._done, self._of, self._began, self._before = "", 0, 0, now(), 0
        self._printed = self._began
        self._later = threading.Timer(soon_s, bool)

    def step(self, words: str, done: int = 0, of: int = 0) -> None:
        """The step that begins; of one whose parts are counted, also how many of how many are done."""
        if words != self._words:
            self._began = self._printed = self._now()
            self._before = done
            self.end()
            if self._console is not None and not self._console.is_terminal:
                self._later = threading.Timer(self._soon_s, self._console.print, (f"... {words}",))
                self._later.daemon = True
                self._later.start()
        self._words, self._done, self._of = words, done, of
        if self._console is None or self._console.is_terminal:
            return
        if self._now() - self._printed >= AGAIN_S:
            self._printed = self._now()
            self._console.print(f"... {self._line()}")

    def end(self) -> None:
        """The step has ended."""
        self._later.cancel()

    def __rich__(self) -> RenderableType:
        text = Text(self._line())
        return text if self.under is None else Group(text, self.under)

    def _line(self) -> str:
        seconds = self._now() - self._began
        of = f" of {self._of}" if self._of else ""
        parts = f", {self._done}{of}" if self._done or of else ""
        here = self._done - self._before
        left_s = seconds / here * (self._of - self._done) if here > 0 else 0
        left = f", about {left_s:.0f} s left" if left_s > 0 else ""
        return f"{self._words}{parts} ({seconds:.0f} s{left})"


@contextmanager
def working(words: str, console: Console | None = None) -> Iterator[Working]:
    """Show what a command does, on standard error by default, until it has done it."""
    line = Working(console := console or Terminal(stderr=True))
    line.step(words)
    try:
        with console.status(line):
            yield line
    finally:
        line.end()


def end_at_signals(words: str, started: Iterable[EngineProcess] = ()) -> None:
    """Have SIGINT and SIGTERM end this process at once with all that it started, as a kill would, but for a
    sentence: while modules and models load, Python's own way takes long and ends in a traceback."""

    def end(number: int, _: object) -> None:
        console = Terminal(stderr=True)
        console.show_cursor()
        console.say(f"\n{words}")
        children: list[BaseProcess | EngineProcess] = [*multiprocessing.active_children(), *started]
        for child in children:
            child.kill()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def write_json(value: object) -> None:
    """A line of JSON to standard output, which a terminal shows without obeying it either."""
    line = one_line(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
    sys.stdout.buffer.write((line if line.isascii() else line.decode().translate(_ESCAPED).encode()) + b"\n")


def unlisted(shown: int, noun: str, every: int) -> str:
    """The sentence below a list that `--limit` shortened."""
    return f"{shown} of {counted(every, noun)} are listed; --limit 0 lists all"


def moment(seconds: float | None, *, year: bool = True) -> str:
    """A time for people, without the date if it is today's; empty for None."""
    if seconds is None:
        return ""
    then, other_day = time.localtime(seconds), "%Y-%m-%d %H:%M" if year else "%m-%d %H:%M"
    return time.strftime("%H:%M:%S" if then[:3] == time.localtime()[:3] else other_day, then)
