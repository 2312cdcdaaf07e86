"""What does a recorded request cost, against LiteLLM's proxy, which forwards requests and records nothing?

Both get the same requests of 1 kB. LiteLLM forwards to a server that has one answer, and is
installed into `build/litellm` if it is absent. The gateway's engine is a fake in its own process: the hop to
a server is not in its figure.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import litellm
from benchmarks.agent_text import agent_model
from benchmarks.asked import Asked
from benchmarks.gateway import CLIENTS, cpu
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, at_most, interleaved, itself, noted, ratios

ENOUGH = 200
"""Requests: a process's CPU time is counted in hundredths of a second."""


def rows(asked: Asked) -> Iterator[Row]:
    """G2p."""
    absent = litellm.installed()
    timed, note = ([], "") if absent else _timed(asked)
    yield Row(
        id="G2p",
        what="CPU of a recorded request / LiteLLM's proxy, which records nothing",
        values=ratios(timed, "gateway"),
        target=at_most(0.25),
        peer="LiteLLM's proxy",
        absent=f"skipped: {absent}",
        note=noted(
            *(f"{run['gateway'] * 1e3:.2f} ms against {run['floor'] * 1e3:.2f}" for run in timed[-1:]), note
        ),
    )


def _timed(asked: Asked) -> tuple[list[dict[str, float]], str]:
    count = ENOUGH if asked.quick else 5 * ENOUGH
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = agent_model(folder / "model")
        with (
            served("gateway", model, folder / "gateway") as ours,
            served("answer", model, folder / "answer") as answer,
            litellm.running(folder, answer.port) as proxy,
        ):
            variants = {
                "floor": lambda: proxy.cpu(CLIENTS, count),
                "gateway": lambda: cpu(ours, CLIENTS, 4 * count),
            }
            return interleaved(variants, runs=asked.runs, clock=itself)
