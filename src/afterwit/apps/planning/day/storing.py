"""What the store keeps of a day, what gateway and store compute, and what the judge is asked.

Constants are of one machine (AMD EPYC, one core) and of text in which a token has 4.6 bytes.
"""

from __future__ import annotations

from afterwit.apps.planning.day.traffic import Day
from afterwit.stages.judge.settings import JudgeSettings

TEXT = 4.6
"""Bytes of a token of Python code: the tokenizer of `benchmarks/agent_text.py` on 200 kB of it."""
AS_JSON = 1.06
"""Bytes that a byte of it takes in a JSON string: `python -m benchmarks scale`."""
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
    """What a turn takes in the store, in the mean: of texts and the prompt's ids only what is new."""
    text = TEXT * AS_JSON
    once = day.new + day.said + day.asked * (1 - 1 / day.session)  # the last is what followed, once more
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
