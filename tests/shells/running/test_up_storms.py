"""Killed gateways and engines under `afterwit up`: they are soon back, and no acknowledged turn is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import pytest

from afterwit.store.sqlite import SqliteStore
from tests.fakes.models import tiny_qwen3
from tests.shells.running.test_up import PROGRAM, free_ports, kill

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(7200)]
SESSIONS = 4
DEADLINE_S = 600.0
"""For a server to come back: minutes on a busy machine."""


class Town:
    """Two servers, their gateway, and sessions that ask without pause."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._model = folder, tiny_qwen3(folder / "model")
        *self._engines, self._gateway = free_ports(3)
        self._process: subprocess.Popen[bytes]
        self.acknowledged: list[str] = []
        """The turns whose whole answer a client has."""

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Run `afterwit up` and its sessions; stop it at the end."""
        self.start()
        tasks = [asyncio.create_task(self._session(number)) for number in range(SESSIONS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._process.terminate()
            await asyncio.to_thread(self._process.wait)

    def start(self) -> None:
        urls = ", ".join(f'"http://127.0.0.1:{port}"' for port in self._engines)
        settings = [
            *(f"serve.port={self._gateway}", "learner.enabled=false", "judge.enabled=false"),
            *(f'engine.command=["{sys.executable}", "{PROGRAM}"]', f"engine.url=[{urls}]"),
            *("placement.device=cpu", "placement.policy=2"),
        ]
        pairs = [word for pair in settings for word in ("--set", pair)]
        command = [
            sys.executable,
            "-m",
            "afterwit",
            "up",
            str(self._model),
            "--home",
            str(self._home),
            *pairs,
        ]
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)

    async def kill_gateway(self) -> None:
        """As a crash would; then it is started again, as a service manager does, once its port is free."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        while any([await self._answers(port) for port in self._engines]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.start()

    async def kill_engine(self, index: int) -> None:
        await asyncio.to_thread(kill, str(self._engines[index]))

    async def back(self) -> None:
        """Wait until gateway and both servers answer, and a session has the answer to a later request."""
        async with asyncio.timeout(DEADLINE_S):
            while not all([await self._answers(port) for port in (*self._engines, self._gateway)]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            known = len(self.acknowledged)
            while len(self.acknowledged) < known + SESSIONS + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def check(self) -> None:
        """Every acknowledged turn is stored, once."""
        store = SqliteStore.open(self._home / "store.db", fingerprint=None)
        stored = Counter(record.turn.id for record in store.turns())
        store.close()
        assert self.acknowledged
        assert Counter(self.acknowledged) <= stored
        assert set(stored.values()) == {1}

    @property
    def _home(self) -> Path:
        return self._folder / "home"

    async def _session(self, number: int) -> None:
        """Each answer goes into the next question; a question that fails is repeated."""
        messages = [{"role": "user", "content": f"I am {number}."}]
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as client:
            while True:
                try:
                    body = {"model": "afterwit", "messages": messages, "max_tokens": 5}
                    url = f"http://127.0.0.1:{self._gateway}/v1/chat/completions"
                    async with client.post(url, json=body) as response:
                        response.raise_for_status()
                        found = await response.json()
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.05)
                    continue
                self.acknowledged.append(found["id"].removeprefix("chatcmpl-"))
                said = found["choices"][0]["message"]["content"]
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And?"}]
                messages = messages if len(messages) < 9 else messages[:1]
                await asyncio.sleep(0.02)

    async def _answers(self, port: int) -> bool:
        path, soon = "readyz" if port == self._gateway else "health", aiohttp.ClientTimeout(total=5)
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{port}/{path}", timeout=soon) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError):
            return False


async def test_thirty_killed_engines_lose_no_acknowledged_turn(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    town, chance, seconds = Town(tmp_path), Random(5), []
    async with town.asking():
        await town.back()
        for _ in range(30):
            await town.kill_engine(chance.randrange(2))
            began = time.monotonic()
            await town.back()
            seconds.append(time.monotonic() - began)
    town.check()
    record_property("seconds", " ".join(f"{each:.1f}" for each in seconds))


async def test_thirty_killed_gateways_lose_no_acknowledged_turn(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    town, chance, seconds = Town(tmp_path), Random(6), []
    async with town.asking():
        await town.back()
        for _ in range(30):
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            began = time.monotonic()
            await town.kill_gateway()
            await town.back()
            seconds.append(time.monotonic() - began)
    town.check()
    record_property("seconds", " ".join(f"{each:.1f}" for each in seconds))
