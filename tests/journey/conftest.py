"""A whole loop over a tiny random model, with a judge who always has the same thing to say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from afterwit.config import Settings, load
from afterwit.judging.voting import Answer
from afterwit.turn import Message
from tests.fakes.models import tiny_qwen3

T = TypeVar("T")

HINT = "Read the file before you write about it, then answer in one line."


class PlainJudge:
    """Finds every response wrong, and always gives the same hint."""

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        asked = "0" in _boxes(messages)
        return Answer(words=r"\boxed{-1}" if asked else rf"\boxed{{1}} [HINT_START]{HINT}[HINT_END]")


def _boxes(messages: Sequence[Message]) -> str:
    """The extra box that the prompt offers: the evaluation's has a 0."""
    text = "".join(message.content or "" for message in messages)
    return "0" if "[HINT_START]" not in text else ""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture
def settings(model: Path, tmp_path: Path) -> Callable[..., Settings]:
    def make(sections: Mapping[str, Mapping[str, Any]] | None = None) -> Settings:
        below: dict[str, dict[str, Any]] = {
            "serve": {"port": 0, "learner_restart_s": 0.2},
            "gateway": {"max_tokens": 24},
            "judge": {"poll_s": 0.05},
            "practice": {"enabled": False},
            "learner": {
                "batch": 2,
                "min_batch": 1,
                "max_wait_s": 0.5,
                "lr": 1e-3,
                "poll_s": 0.05,
                "threads": 1,
            },
        }
        for name, section in (sections or {}).items():
            below.setdefault(name, {}).update(section)
        return load(home=tmp_path, below={"model": str(model)} | below, environment={})

    return make


CLIENTS: list[AsyncOpenAI] = []


@pytest.fixture(autouse=True)
async def _clients_are_closed() -> AsyncIterator[None]:
    """With the test's loop: a socket that outlives it fails whichever test collects it."""
    yield
    while CLIENTS:
        await CLIENTS.pop().close()


def client(url: str, key: str = "none") -> AsyncOpenAI:
    """It is closed with the test."""
    http = DefaultAsyncHttpxClient(verify=False)
    made = AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=120, http_client=http)
    CLIENTS.append(made)
    return made


async def until(look: Callable[[], Awaitable[T | None]], *, within_s: float = 500.0) -> T:
    """The first result of `look` that is not None. The limit ends a test that hangs; it measures no speed."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if (found := await look()) is not None:
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"nothing within {within_s} s")
