"""The traffic of a day. All numbers here are assumed: count your own and pass them."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.judging.settings import JudgeSettings

DAY_S = 86_400.0


HOUR_S = 3600.0


HOURS = (2, 1, 1, 1, 1, 2, 3, 5, 8, 10, 11, 10, 8, 9, 11, 11, 10, 8, 6, 5, 5, 5, 4, 3)
"""How much of the day falls into each hour, in no unit: an office's day with some evening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A coding agent's sessions: each turn adds a few hundred tokens to the conversation."""

    turns: int
    session: float = 20.0
    """Turns of a session, in the mean."""
    spread: float = 0.7
    """Their standard deviation, over the mean: long sessions hold most turns."""
    system: int = 6_000
    """Tokens that a session begins with: system prompt and tools."""
    asked: int = 430
    """Tokens of the message of a person or a tool before each turn."""
    said: int = 200
    """Tokens of a response."""
    steps: int = 6
    """Turns for each message of a person; before the others a tool returned."""
    pause_s: float = 45.0
    """From one turn of a session to its next."""
    trains: float = 0.4
    """Of the turns that something followed, the share whose verdict trains."""
    hints: float = 1.0
    """Hints of a turn that trains, in the mean."""
    hint: int = 60
    """Tokens of a hint with its heading."""
    answer: int = 200
    """Tokens of one answer of the judge."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.session < 1 or self.pause_s <= 0:
            raise ValueError("a day has at least one turn, in sessions of at least one, with pauses")

    @property
    def sessions(self) -> float:
        """How many begin."""
        return self.turns / self.session

    @property
    def learned(self) -> float:
        """Turns that train: the last turn of a session is answered by nothing."""
        return (self.turns - self.sessions) * self.trains

    @property
    def place(self) -> float:
        """A turn's place in its session, from 1, in the mean over turns: longer sessions have more turns."""
        return (self.session * (1 + self.spread**2) + 1) / 2

    @property
    def new(self) -> float:
        """Tokens of a prompt that its parent's prompt and response have not, in the mean over turns."""
        return (self.system + self.session * self.asked + (self.session - 1) * self.said) / self.session

    @property
    def prompt(self) -> float:
        """Tokens of a prompt, in the mean over turns."""
        return self.system + self.place * self.asked + (self.place - 1) * self.said

    @property
    def behind(self) -> float:
        """Tokens of a prompt after the last message of a person, in the mean."""
        return (self.steps - 1) / 2 * (self.asked + self.said)

    @property
    def rates(self) -> tuple[float, ...]:
        """Turns a second in each hour of the day."""
        return tuple(self.turns * hour / sum(HOURS) / HOUR_S for hour in HOURS)

    @property
    def peak(self) -> float:
        """Turns a second in the fullest hour."""
        return max(self.rates)

    def at_once(self, rate: float) -> float:
        """Concurrent sessions while `rate` turns come a second, as a turn of one finds them.

        Long sessions have more turns than others, so a whole day's count for fewer than there are.
        """
        most = self.sessions / (1 + self.spread**2)
        return max(1.0, min(1 + rate * self.pause_s, most))


TEXT = 4.6
"""Bytes of a token of Python code: the tokenizer of `benchmarks/agent_text.py` on 200 kB of code."""


AS_JSON = 1.06
"""Bytes that a byte of code takes in a JSON string: `python -m benchmarks scale`."""


ID, LOGPROB, FLAG = 4, 4, 1
"""Bytes of a token's id, log-prob and flag in the store."""


ROWS = 3_400
"""Bytes of a turn's rows and index entries, and of what pages leave empty: `python -m benchmarks scale`."""


REQUEST_S, REQUEST_TOKEN_S = 1.0e-3, 0.23e-6
"""CPU of a recorded request without what its prompt adds, and for each token of its prompt:
`python -m benchmarks gateway agents`."""


STORE_S, STORE_TOKEN_S = 0.9e-3, 0.1e-6
"""CPU of the store's calls for one turn, and for each token of its prompt, which judge and learner read back:
`python -m benchmarks scale`."""


ASKED = 4_100
"""Characters of a judge's question beside what it is shown: `python -m benchmarks scale`."""


def stored_bytes(day: Day, judge: JudgeSettings = JudgeSettings()) -> float:
    """Bytes of a turn in the store, in the mean: of texts and the prompt's ids only what is new."""
    text = TEXT * AS_JSON
    once = day.new + day.said + day.asked * (1 - 1 / day.session)  # the last is stored again as what followed
    return text * (once + calls(judge) * day.answer) + ID * day.new + (ID + LOGPROB + FLAG) * day.said + ROWS


def days_kept(day: Day, keep_gb: float, keep_days: float) -> float:
    """After how many days the oldest turns are removed."""
    return min(keep_days, keep_gb * 2**30 / (stored_bytes(day) * day.turns))


def request_seconds(day: Day) -> float:
    """CPU of the gateway, store included, for one request."""
    return REQUEST_S + REQUEST_TOKEN_S * day.prompt


def store_seconds(day: Day) -> float:
    """CPU of the store for one turn from its request to its version."""
    return STORE_S + STORE_TOKEN_S * day.prompt


def question_tokens(day: Day, judge: JudgeSettings = JudgeSettings()) -> float:
    """Tokens of one of the judge's questions."""
    shown = (
        min(judge.context_chars, TEXT * day.prompt)
        + min(judge.response_chars, TEXT * day.said)
        + min(judge.next_state_chars, TEXT * day.asked)
    )
    return (ASKED + shown) / TEXT


def calls(judge: JudgeSettings) -> int:
    """Of the judge, for one turn of which nothing is decided without votes."""
    return 2 * judge.votes
