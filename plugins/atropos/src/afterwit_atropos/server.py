"""The calls of a trainer to an Atropos server. Only HTTP: the server's library is not needed here."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from afterwit.api.turns import AfterwitError


class ServerAway(AfterwitError):
    """The server does not answer; a later call may succeed."""


class NotRegistered(AfterwitError):
    """No trainer is registered: the server is new or was restarted."""


class BatchLost(AfterwitError):
    """The server failed to give out a batch, which it no longer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A trainer's registration; environments read most of these fields."""

    batch_size: int
    """Sequences of a batch: the server gives out whole groups that add up to exactly this number."""
    max_token_len: int
    starting_step: int
    checkpoint_dir: str
    num_steps: int
    """Environments stop after this number of batches."""
    save_checkpoint_interval: int = 1
    wandb_group: str = "afterwit"
    wandb_project: str = "afterwit"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtroposServer:
    """A server at `url`. Every call raises ServerAway if it does not answer."""

    url: str
    timeout_s: float

    def register(self, registration: Registration) -> None:
        """Register a trainer. Environments wait for this, and for its first request for a batch."""
        self._call("/register", orjson.dumps(asdict(registration)))

    def batch(self) -> list[Any] | None:
        """The groups of the newest finished batch; None: there is none.

        Raises NotRegistered, and BatchLost if the batch cannot be read: the server has forgotten it.
        """
        answer = self._call("/batch")
        if not isinstance(answer, dict):
            raise BatchLost("the server answered with no object")
        if answer.get("status") == "error":
            raise NotRegistered("the server knows no trainer")
        groups = answer.get("batch")
        if groups is not None and not isinstance(groups, list):
            raise BatchLost(f"a batch came as {type(groups).__name__}, not as a list of groups")
        return groups

    def waiting(self) -> int:
        """Groups that the server holds for batches to come."""
        answer = self._call("/status")
        size = answer.get("queue_size") if isinstance(answer, dict) else None
        return size if isinstance(size, int) else 0

    def reset(self) -> None:
        """Delete all that the server holds, so that it accepts a registration."""
        self._call("/reset_data", json=False)

    def _call(self, path: str, body: bytes | None = None, *, json: bool = True) -> Any:
        status, text = self._answer(path, body)
        if status >= 400:
            said = text[:300].decode(errors="replace").strip()
            if path == "/batch" and status >= 500:
                raise BatchLost(f"the server failed with {status}: {said}")
            raise ServerAway(f"{self.url}{path} answers {status}: {said}")
        if not json:
            return None
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            if path == "/batch":
                raise BatchLost(f"a batch came as no valid JSON: {error}") from error
            raise ServerAway(f"{self.url}{path} is not an Atropos server: {error}") from error

    def _answer(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Status and body of the server's answer, whatever the status."""
        request = urllib.request.Request(
            self.url.rstrip("/") + path, data=body, headers={"Content-Type": "application/json"}
        )
        try:
            try:
                answer = urllib.request.urlopen(request, timeout=self.timeout_s)
            except urllib.error.HTTPError as error:
                answer = error  # an answer too
            with answer:
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ServerAway(f"{self.url} does not answer: {reason}") from error
