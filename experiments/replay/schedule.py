"""Plays on a host: one after another, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from experiments.replay.hosts.port import Host, Served
from experiments.replay.traffic import Ask, Play


@dataclass(slots=True)
class Played:
    """The result of one play."""

    name: str
    """The kind of client."""
    served: list[Served] = field(default_factory=list)


async def play(host: Host, plays: Sequence[tuple[str, Play]], *, at_once: int, rng: Random) -> list[Played]:
    """Run every play to its end; `at_once` plays take turns by chance."""
    waiting = [(Played(name), running) for name, running in plays]
    done = [each for each, _ in waiting]
    active: list[tuple[Played, Play, tuple[Ask, ...]]] = []
    while waiting or active:
        while waiting and len(active) < at_once:
            played, running = waiting.pop(0)
            active.append((played, running, next(running, ())))
        at = rng.randrange(len(active))
        played, running, asks = active[at]
        following = await _step(host, played, running, asks) if asks else ()
        if following:
            active[at] = (played, running, following)
        else:
            active.pop(at)
    return done


async def _step(host: Host, played: Played, running: Play, asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    """Serve what the play asks, and return what it asks next; nothing at its end."""
    served = await host.serve(asks)
    played.served += served
    try:
        return running.send(tuple(one.answer for one in served))
    except StopIteration:
        return ()
