"""Reasoning, content and tool calls, read from a response's text while it streams.

A call is handed on when it is complete, and the beginning of its arguments before (`calls.ahead`). One that
cannot be read is content: nothing that was sampled is lost.
The time is proportional to the text, however it is cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from afterwit.core.message import Message
from afterwit.wire.model_text.calls.written import schemas_of
from afterwit.wire.model_text.conventions import Convention, Thought
from afterwit.wire.model_text.response.growing import Growing
from afterwit.wire.model_text.response.harmony import HarmonyReader
from afterwit.wire.model_text.response.marked import MarkedReader
from afterwit.wire.response import ResponseEvent

SLICE = 4096
"""Characters read at a time: what follows a call is copied once for each call."""


class ResponseParser:
    """Reads one response.

    `thought`: it begins inside this reasoning. The `tools` of the request type the arguments that a
    convention writes without quotes.
    """

    def __init__(
        self,
        convention: Convention,
        *,
        thought: Thought | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._growing = Growing()
        self._reader: HarmonyReader | MarkedReader
        if convention.grammar == "harmony":
            self._reader = HarmonyReader(convention, self._growing, schemas_of(tools))
        else:
            self._reader = MarkedReader(convention, self._growing, schemas_of(tools), thought)

    def push(self, text: str) -> list[ResponseEvent]:
        """The events that this text completes."""
        for start in range(0, len(text), SLICE):
            self._reader.push(text[start : start + SLICE])
        return self._growing.taken()

    def finish(self) -> list[ResponseEvent]:
        """What was held back when the response ended."""
        self._reader.finish()
        return self._growing.taken()

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The whole response; `call_id` names the call at an index."""
        return self._growing.message(call_id)
