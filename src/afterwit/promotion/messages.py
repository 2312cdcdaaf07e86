"""The sentences of promotion; they never quote a conversation. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from afterwit.promotion.episodes import BadEnd, Episode
from afterwit.promotion.events import Event
from afterwit.promotion.suite import SuiteResult
from afterwit.version import Version

SAID = {
    BadEnd.DISPLEASED: "in displeasure without a hint",
    BadEnd.NO_END: "never",
    BadEnd.REPEATED_CALL: "after repeated calls",
    BadEnd.CUT_AT_LENGTH: "with a response cut at its length",
}


NEWEST = 12
"""Episodes that an alarm speaks of."""


def on_held(suite: SuiteResult, *, turns: int) -> str:
    """Why an update of `turns` turns was held back."""
    lost = ", ".join(f"{gone} of {of} `{name}`" for name, (gone, of) in suite.lost.items() if gone)
    return (
        f"an update of {turns} turns was held back: it would have lost {lost} that people had approved"
        f" (evidence {suite.evidence:.3g}); its turns are set aside as held_back"
    )


def on_alarm(episodes: Sequence[Episode], *, safe: int) -> str:
    """Why what was learned is taken back."""
    newest = episodes[-NEWEST:]
    ends = Counter(SAID[each.bad] for each in newest if each.bad is not None)
    said = ", ".join(f"{count} {words}" for words, count in ends.most_common())
    where = f"version {safe}, the last confirmed one" if safe else "the model as it came"
    return f"of the last {len(newest)} requests, these ended badly: {said}; back to {where}"


def on_confirmed(version: int, episodes: int) -> str:
    """That a version is a place to return to."""
    return f"version {version} is confirmed: since it came, {episodes} requests ended well and none badly"


def on_fall_back(made: Version, event: Event) -> str:
    """That learning was taken back, and why."""
    taken = ", ".join(map(str, made.reverts)) or "none"
    where = f"version {made.number} has the weights of version {made.restores}"
    return f"{where}; taken back: {taken}; {event.words}"


def on_withdrawn(turns: int) -> str:
    """That people want something else than they approved."""
    were = "response is" if turns == 1 else "responses are"
    return f"{turns} approved {were} asked for no longer: their source asks for something else now"


def on_brake(*, rate: float, beta: float) -> str:
    """What holds and alarms have changed in the updates that come."""
    return f"the brake is on: learner.lr is {rate:.2g} and objective.beta {beta:.2g} for now"


def on_alarms(alarms: int) -> str:
    """Why learning waits for a person."""
    return (
        f"{alarms} times in a row more requests ended badly than before, and what had been learned was taken"
        " back: look at `afterwit versions` and `afterwit turns`, lower learner.lr or raise objective.beta,"
        " then `afterwit resume`"
    )


def on_pause(holds: int) -> str:
    """Why learning waits for a person."""
    return (
        f"{holds} updates in a row were held back: look at `afterwit versions`, lower learner.lr or raise"
        " objective.beta, then `afterwit resume`"
    )
