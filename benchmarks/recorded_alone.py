"""The least that a recording gateway does: a prompt's text and ids, and one durable write of the turn."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from afterwit.chat_format.render import Renderer
from afterwit.dialects.chat import parse_request
from afterwit.gateway.settings import GatewaySettings
from afterwit.running.serve import spare_what_stays
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from benchmarks.gateway_load import small_body
from benchmarks.measure import cpu_seconds

ANSWER = 12
"""Tokens of an answer."""


class RecordedAlone:
    def __init__(self, model: Path) -> None:
        self._renderer = Renderer.load(model)
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._numbers = itertools.count()
        spare_what_stays()  # as the gateway's process does

    def cpu_seconds(self, count: int) -> float:
        """CPU seconds of one of `count` small requests."""
        limits = GatewaySettings().request_limits
        asked = [parse_request(small_body(), limits).conversation for _ in range(count)]
        with tempfile.TemporaryDirectory() as name:
            store = SqliteStore.open(Path(name) / "store.db", fingerprint=None)
            spent = cpu_seconds(lambda: [self._record(store, each) for each in asked]) / count
            store.close()
        return spent

    def ids(self, conversation: Conversation) -> list[int]:
        """A prompt's ids, tokenised whole."""
        text = self._renderer.text(conversation)
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _record(self, store: SqliteStore, conversation: Conversation) -> None:
        turn = _turn(f"t{next(self._numbers):024d}", conversation, self.ids(conversation))
        store.add_turn(
            turn,
            prompt_hash=turn.id.encode(),
            full_hash=turn.id.encode(),
            depth=1,
            full_depth=2,
            delivered=True,
            reason=None,
            now=turn.created,
        )


def _turn(name: str, conversation: Conversation, prompt: Sequence[int]) -> Turn:
    return Turn(
        id=name,
        scope="key/agent",
        session=name,
        parent=None,
        kind=Kind.MAIN,
        created=1.0,
        model="tiny",
        conversation=conversation,
        prompt_ids=tuple(prompt),
        sampling=Sampling(max_tokens=64),
        sampled=Sampled(
            ids=tuple(prompt[:ANSWER]),
            logprobs=(-0.5,) * ANSWER,
            versions=(0,) * ANSWER,
            forced=(False,) * ANSWER,
        ),
        message=Message(role="assistant", content="It is in the second file, on line forty two."),
        finish=Finish.STOP,
    )
