"""What does the next request of a long agent session cost, with only a few hundred new tokens?

Sessions of 60 messages and 25,000 tokens are played from their first request, recorded, and echoed as agents
do. Only the last requests are timed: everything that the gateway does for them, as CPU time of its process,
against making their prompts' text and ids from nothing. Left out: models, slow disks.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import uvloop

from afterwit.dialects.chat import parse_request
from afterwit.gateway.settings import GatewaySettings
from benchmarks.agent_text import MESSAGES, AgentSession, agent_model
from benchmarks.asked import Asked
from benchmarks.gateway_load import as_http, ask
from benchmarks.gateway_servers import Server, served
from benchmarks.measure import Row, at_most, cpu_seconds, interleaved, itself, noted, ratios
from benchmarks.quick_engine import CALL
from benchmarks.recorded_alone import RecordedAlone

TIMED = 3
"""Requests at the end of each session that are timed."""


def rows(asked: Asked) -> Iterator[Row]:
    """G0."""
    with tempfile.TemporaryDirectory() as name:
        model = agent_model(Path(name) / "model")
        with served("gateway", model, Path(name) / "gateway") as server:
            play = _Play(server, RecordedAlone(model), sessions=1 if asked.quick else 6)
            variants = {"floor": play.whole, "request": play.served}
            timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    millis = {name: statistics.median(run[name] for run in timed) * 1e3 for name in variants}
    yield Row(
        id="G0",
        what=f"a session's next request, {MESSAGES} messages / its prompt from nothing",
        values=ratios(timed, "request"),
        target=at_most(0.15),
        floor="the whole prompt's text and ids",
        note=noted(f"{play.tokens} tokens, {millis['request']:.1f} ms against {millis['floor']:.1f}", note),
    )


@dataclass(slots=True)
class _Play:
    server: Server
    alone: RecordedAlone
    sessions: int
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """The last requests that were timed."""
    tokens: int = 0
    """Of the longest prompt."""
    numbers: Iterator[int] = field(default_factory=count)

    def served(self) -> float:
        """The gateway's CPU seconds of one timed request."""
        self.bodies = []
        return uvloop.run(self._sessions()) / (self.sessions * TIMED)

    def whole(self) -> float:
        """CPU seconds of one timed request's prompt alone."""
        if not self.bodies:
            self.served()
        limits = GatewaySettings().request_limits
        asked = [parse_request(body, limits).conversation for body in self.bodies]
        self.tokens = max(len(self.alone.ids(conversation)) for conversation in asked[-TIMED:])
        return cpu_seconds(lambda: [self.alone.ids(each) for each in asked]) / len(asked)

    async def _sessions(self) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        spent = 0.0
        for _ in range(self.sessions):
            session = AgentSession(next(self.numbers))
            while (said := len(session.messages)) <= MESSAGES:
                before = self.server.cpu_seconds()
                body = session.body(max_tokens=CALL)
                answer = orjson.loads(await ask(reader, writer, as_http(body)))
                session.take(answer["choices"][0]["message"])
                if said > MESSAGES - 2 * TIMED:
                    spent += self.server.cpu_seconds() - before
                    self.bodies.append(body)
        writer.close()
        return spent
