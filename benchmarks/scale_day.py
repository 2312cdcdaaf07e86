"""A synthetic day: agents' sessions of uneven length that come by the hour, and grow turn by turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

from afterwit.store import Store
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from benchmarks.agent_text import passage
from benchmarks.asked import VOCABULARY
from benchmarks.sessions import drawn
from experiments.day.traffic import HOUR_S, HOURS, TEXT, Day


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """A request: when, of which session, and its place there from 0."""

    at: float
    session: int
    place: int
    last: bool


def arrivals(day: Day, random: Random, *, all_day: bool) -> list[Arrival]:
    """As many as the day has turns, by their time.

    Sessions go on for all of the day, or begin by the hour and go on turn by turn, at the end into the next.
    """
    sigma = math.sqrt(math.log(1 + day.spread**2))
    found: list[Arrival] = []
    session = 0
    while (left := day.turns - len(found)) > 0:
        drawn_turns = round(random.lognormvariate(math.log(day.session) - sigma**2 / 2, sigma))
        turns = min(max(drawn_turns, 1), left)
        times = sorted(_by_hour(random, turns)) if all_day else _in_a_row(random, turns, day.pause_s)
        found += [Arrival(at, session, place, place + 1 == turns) for place, at in enumerate(times)]
        session += 1
    return sorted(found)


def _by_hour(random: Random, count: int) -> list[float]:
    return [(hour + random.random()) * HOUR_S for hour in random.choices(range(24), HOURS, k=count)]


def _in_a_row(random: Random, count: int, pause_s: float) -> list[float]:
    (begins,) = _by_hour(random, 1)
    return list(accumulate((random.expovariate(1 / pause_s) for _ in range(count - 1)), initial=begins))


@dataclass(slots=True)
class Talk:
    """A session as far as it went."""

    day: Day
    number: int
    said: list[Message] = field(default_factory=list)
    ids: tuple[int, ...] = ()
    last: Turn | None = None
    person_at: int = 0
    """The end of a person's last message, in ids."""
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.number)
        self.said = [Message(role="system", content=self.words(self.day.system))]
        self.ids = drawn(self._random, self.day.system, VOCABULARY)

    def asks(self, place: int) -> tuple[Message, ...]:
        """Add the message before the turn at this place to the session, and return it."""
        person = place % self.day.steps == 0
        message = Message(
            role="user" if person else "tool",
            content=self.words(self.day.asked),
            tool_call_id=None if person else f"call_{place}",
        )
        self.said.append(message)
        self.ids += drawn(self._random, self.day.asked, VOCABULARY)
        if person:
            self.person_at = len(self.ids)
        return (message,)

    def turn(self, number: int, *, at: float, version: int, scope: str) -> Turn:
        """The response at the end of what was asked; it is in the session from now on."""
        ids = drawn(self._random, self.day.said, VOCABULARY)
        answer = Message(role="assistant", content=self.words(self.day.said))
        turn = Turn(
            id=f"{number:026d}",
            scope=scope,
            session=f"{self.number:026d}",
            parent=None if self.last is None else self.last.id,
            kind=Kind.MAIN,
            created=at,
            model="policy",
            conversation=Conversation(messages=tuple(self.said)),
            prompt_ids=self.ids,
            sampling=Sampling(max_tokens=512),
            sampled=Sampled(
                ids=ids,
                logprobs=tuple(-token / VOCABULARY for token in ids),
                versions=(version,) * len(ids),
                forced=(False,) * len(ids),
            ),
            message=answer,
            finish=Finish.STOP,
        )
        self.said.append(answer)
        self.ids += ids
        self.last = turn
        return turn

    def words(self, tokens: int) -> str:
        """Text of about `tokens` tokens."""
        return passage(self._random, round(tokens * TEXT))


def record(store: Store, turn: Turn) -> None:
    """Store it as the gateway does, but for binding; it begins nothing that another turn might continue."""
    said, name = len(turn.conversation.messages), turn.id.encode()
    store.add_turn(
        turn,
        prompt_hash=name[-16:],
        full_hash=name[:-17:-1],
        depth=said,
        full_depth=said + 1,
        delivered=False,
        reason=None,
        now=turn.created,
    )
    store.delivered([turn.id])
