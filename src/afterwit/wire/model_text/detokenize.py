"""From sampled ids to text while they arrive, and where a stop string cuts it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from afterwit.wire.model_text.conventions import MARKERS
from afterwit.wire.model_text.render import Renderer

_BROKEN = "\ufffd"


class Detokenizer:
    """Text of a response as its ids arrive. Never emits half a character; control tokens have no text."""

    def __init__(self, decode: Callable[[Sequence[int]], str], *, silent: Collection[int] = ()) -> None:
        self._decode = decode
        self._silent = silent
        self._ids: list[int] = []
        # decoding depends on what stands before: each new text is read behind the piece last emitted
        self._context = 0
        self._emitted = 0

    @classmethod
    def of(cls, renderer: Renderer) -> Detokenizer:
        """For one response: silent on control tokens, except those that mark thought and calls."""
        control = {index for index, text in renderer.special_ids.items() if text not in MARKERS}
        return cls(renderer.decode, silent=control | renderer.end_ids)

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids complete."""
        self._ids += [index for index in ids if index not in self._silent]
        text = self._pending()
        if not text or text.endswith(_BROKEN):
            return ""
        self._context, self._emitted = self._emitted, len(self._ids)
        return text

    def finish(self) -> str:
        """What is left; bytes that never became a character are U+FFFD."""
        text = self._pending()
        self._context = self._emitted = len(self._ids)
        return text

    def _pending(self) -> str:
        before = self._decode(self._ids[self._context : self._emitted])
        return self._decode(self._ids[self._context :])[len(before) :]


class StopStrings:
    """Cuts a text at the first of the stop strings, which is not part of it."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.matched: str | None = None
        """The stop string that was met: nothing comes after it."""

    def push(self, text: str) -> str:
        """What may be shown by now: the end of it is held back while it may begin a stop string."""
        if self.matched is not None:
            return ""
        text, self._held = self._held + text, ""
        found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:  # the first to be complete, so that it does not matter how the text was cut into pieces
            end, length, self.matched = min(found)
            return text[: end + length]
        keep = len(text) - self._possible(text)
        text, self._held = text[:keep], text[keep:]
        return text

    def finish(self) -> str:
        """What was held back; it became no stop string."""
        text, self._held = self._held, ""
        return text

    def _possible(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
