"""kill -9 of everything at once, again and again, while an agent talks: nothing acknowledged is lost, nothing
trains twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from afterwit.checkpoints.versions import Versions
from afterwit.home.home import page_token
from afterwit.lifecycle import State
from afterwit.store.sqlite import SqliteStore
from tests.journey.conftest import client

SETTINGS = (
    "learner.batch=2",
    "practice.enabled=false",
    "learner.min_batch=1",
    "learner.max_wait_s=0.2",
    "learner.lr=1e-3",
    "learner.poll_s=0.05",
    "learner.threads=1",
    "learner.keep_versions=50",
    "learner.max_staleness=1000",
    "judge.poll_s=0.05",
    "judge.max_tokens=4",
    "gateway.max_tokens=8",
    "serve.learner_restart_s=0.2",
)


class Server:
    """`afterwit serve` in a process group of its own, so that one signal kills learner and all."""

    def __init__(self, model: Path, home: Path, port: int, rank: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        flags = [part for each in (*SETTINGS, f"learner.lora_rank={rank}") for part in ("--set", each)]
        command = [
            sys.executable,
            "-m",
            "afterwit",
            "serve",
            str(model),
            "--home",
            str(home),
            "--port",
            str(port),
        ]
        self._log = home / "serve.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *flags], start_new_session=True, stderr=log)

    async def ready(self) -> None:
        deadline = time.monotonic() + 180  # a busy machine imports for minutes
        async with httpx.AsyncClient() as http:
            while time.monotonic() < deadline:
                assert self._process.poll() is None, self._log.read_text()[-2000:]
                try:
                    if (await http.get(self.url.removesuffix("/v1") + "/healthz")).is_success:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        raise AssertionError("serve did not start")

    def kill(self) -> None:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def talk(url: str, home: Path, acknowledged: list[str], rated: list[str]) -> None:
    """Ask and rate until the server dies."""
    agent, number = client(url, page_token(home)), len(acknowledged)
    while True:
        number += 1
        messages = [{"role": "user", "content": f"Question {number}: what is in notes/{number}.txt?"}]
        answer = await agent.chat.completions.create(model="afterwit", messages=messages)
        acknowledged.append(answer.id.removeprefix("chatcmpl-"))
        rating = {"response_id": answer.id, "thumb": random.Random(number).choice(["up", "down"])}
        await agent.post("/feedback", body=rating, cast_to=object)
        rated.append(acknowledged[-1])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rank", [0, 16])
async def test_nothing_acknowledged_is_lost_and_nothing_trains_twice(
    model: Path, tmp_path: Path, rank: int
) -> None:
    acknowledged: list[str] = []
    rated: list[str] = []
    chance, port = random.Random(7), free_port()
    for _ in range(3):
        server = Server(model, tmp_path, port, rank)
        try:
            await server.ready()
            talking = asyncio.create_task(talk(server.url, tmp_path, acknowledged, rated))
            await asyncio.sleep(chance.uniform(3.0, 8.0))
            acknowledged += await said_without_store(server.url, tmp_path)
        finally:
            server.kill()
        await asyncio.gather(talking, return_exceptions=True)
        move(tmp_path, "away.db", "store.db")
    versions = Versions(root=tmp_path / "versions", base=model)
    await until_trained(Server(model, tmp_path, port, rank), tmp_path, rated)
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    states = {record.turn.id: record.state for record in store.turns()}
    store.close()
    assert len(acknowledged) > 10
    assert set(acknowledged) <= states.keys()
    assert {states[turn] for turn in rated} == {State.TRAINED}
    times = Counter(turn for version in versions.all() for turn in version.turns)
    assert set(rated) <= times.keys()
    assert set(times.values()) == {1}


async def said_without_store(url: str, home: Path) -> list[str]:
    """The turns of two responses that are served while the store is away, which it still is at the end."""
    move(home, "store.db", "away.db")
    agent, turns = client(url, page_token(home)), []
    for number in range(2):
        messages = [{"role": "user", "content": f"Without a store, {number}?"}]
        answer = await agent.chat.completions.create(model="afterwit", messages=messages)
        turns.append(answer.id.removeprefix("chatcmpl-"))
    return turns


def move(home: Path, store: str, there: str) -> None:
    for file in home.glob(f"{store}*"):
        file.rename(home / file.name.replace(store, there, 1))


async def until_trained(server: Server, home: Path, turns: list[str]) -> None:
    """Let a last server finish what the killed ones began."""
    try:
        await server.ready()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            store = SqliteStore.open(home / "store.db", fingerprint=None)
            waiting = [turn for turn in turns if store.turn(turn).state is not State.TRAINED]
            store.close()
            if not waiting:
                return
            await asyncio.sleep(0.3)
    finally:
        server.kill()
    raise AssertionError(f"{len(waiting)} turns still wait, such as {waiting[0]}")
