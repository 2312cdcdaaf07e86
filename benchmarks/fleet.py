"""How many tokens do two servers under one gateway sample, against one?

Streams come through the gateway to one server that imitates vLLM, then to a fleet of two. Such a server
samples for SLOTS streams at a time, a token each every 20 ms, and lets others wait, like a GPU with a full
batch. Left out: GPUs, and the cost of reading a prompt on a server that has not cached its beginning.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.asked import Asked
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, at_least, interleaved, itself
from benchmarks.through import MODEL, ROUNDS, STREAMS, TOKENS, bodies, seconds


def rows(asked: Asked) -> Iterator[Row]:
    """F1."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        rounds = 1 if asked.quick else ROUNDS
        urls = []
        for each in ("one", "two"):
            server = stack.enter_context(served("full", MODEL, folder / each))
            urls.append(f"http://127.0.0.1:{server.port}")
        one = stack.enter_context(served("gateway", MODEL, folder / "alone", urls[0]))
        two = stack.enter_context(served("gateway", MODEL, folder / "fleet", *urls))
        variants = {
            "floor": lambda: seconds(one.port, bodies(rounds, "afterwit")),
            "fleet": lambda: seconds(two.port, bodies(rounds, "afterwit")),
        }
        timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    rate = rounds * STREAMS * TOKENS / min(run["floor"] for run in timed)
    yield Row(
        id="F1",
        what=f"tokens a second with two servers / with one, {STREAMS} streams, half of which fit one server",
        values=tuple(run["floor"] / run["fleet"] for run in timed),
        target=at_least(1.8),
        floor="one server that stands in for vLLM",
        note=f"{rate:.0f} tokens a second with one" + (f"; {note}" if note else ""),
    )
