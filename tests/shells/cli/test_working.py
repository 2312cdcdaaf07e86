"""While a command waits, it names its step."""

from __future__ import annotations

import io
import time

from rich.console import Console
from rich.panel import Panel

from afterwit.printing.terminal import Working, working


def test_a_step_shows_n_of_m_its_seconds_and_about_how_many_are_left() -> None:
    now = 100.0
    line = Working(Console(force_terminal=True, file=io.StringIO()), now=lambda: now)
    line.step("copying versions", 0, 8)
    assert str(line.__rich__()) == "copying versions, 0 of 8 (0 s)"
    line.step("copying versions", 2, 8)
    now = 110.0
    assert str(line.__rich__()) == "copying versions, 2 of 8 (10 s, about 30 s left)"
    line.step("writing rows", 7)
    assert str(line.__rich__()) == "writing rows, 7 (0 s)"


def test_the_time_left_follows_from_what_was_done_since_the_step_began() -> None:
    now = 0.0
    line = Working(Console(force_terminal=True, file=io.StringIO()), now=lambda: now)
    line.step("people's tasks", 40, 48)
    now = 10.0
    line.step("people's tasks", 44, 48)
    assert str(line.__rich__()) == "people's tasks, 44 of 48 (10 s, about 10 s left)"


def test_what_a_command_puts_under_a_step_is_shown_under_it() -> None:
    shown = io.StringIO()
    with working("measuring", Console(force_terminal=True, width=80, file=shown)) as line:
        line.under = Panel("the newest conversation")
        while "newest" not in shown.getvalue():
            time.sleep(0.01)
    assert shown.getvalue().index("measuring") < shown.getvalue().index("the newest conversation")


def test_without_a_terminal_a_step_that_lasts_is_one_line_and_a_short_one_is_none() -> None:
    shown = io.StringIO()
    line = Working(Console(file=shown), soon_s=0.05)
    line.step("soon done")
    for done in range(3):
        line.step("copying versions", done, 3)
    while not shown.getvalue():
        time.sleep(0.01)
    line.end()
    assert shown.getvalue() == "... copying versions\n"


def test_without_a_terminal_a_long_step_shows_every_half_minute_how_far_it_is() -> None:
    shown, now = io.StringIO(), 0.0
    line = Working(Console(file=shown), now=lambda: now)
    for done in range(6):
        line.step("reading replies", done, 6)
        now += 12.0
    line.end()
    assert shown.getvalue() == "... reading replies, 3 of 6 (36 s, about 36 s left)\n"


def test_a_terminal_is_as_clean_afterwards_as_before() -> None:
    shown = io.StringIO()
    with working("loading the model", Console(force_terminal=True, width=80, file=shown)):
        pass
    assert shown.getvalue().endswith("\x1b[2K")  # the line is cleared
