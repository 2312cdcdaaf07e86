"""Conversations recorded by other programs: a file's lines become recordings, or say why they cannot.

A line is one JSON object. `messages` alone is a whole conversation in OpenAI chat's form (`openai_chat`).
With `response_text` it is one turn as OpenClaw-RL writes it (`openclaw_rl`); sessions are put together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from afterwit.core.errors import RequestError
from afterwit.core.recording import Recording
from afterwit.wire.recorded.openai_chat import parse_conversation
from afterwit.wire.recorded.openclaw_rl import SessionChains, is_record, parse_record

__all__ = ["BadLine", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that cannot be imported."""

    number: int
    """Its place in the file, from 1 on."""
    reason: str


def read(lines: Iterable[bytes]) -> Iterator[Recording | BadLine]:
    """The recordings of a file's lines, in order. A session of several records comes when its end is known.

    Empty lines are left out.
    """
    chains = SessionChains()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = orjson.loads(line)
            if is_record(data):
                yield from chains.add(parse_record(data))
            else:
                yield parse_conversation(data)
        except orjson.JSONDecodeError as error:
            yield BadLine(number=number, reason=f"not valid JSON: {error}")
        except RequestError as error:
            yield BadLine(number=number, reason=error.message)
        except ValueError as error:
            yield BadLine(number=number, reason=str(error))
    yield from chains.rest()
