"""From sampled ids to text while they arrive, up to a stop string."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from afterwit.chat_format.render import Renderer

_BROKEN = "\ufffd"

LONGEST_CHARACTER = 4
"""Most tokens of one character: UTF-8 has at most four bytes."""


class Detokenizer:
    """The text of a response as its ids arrive, in whole characters and without control tokens."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        silent: Collection[int] = (),
        joins_bytes: bool = False,
    ) -> None:
        """`joins_bytes`: `decode` joins the bytes of its ids, see `Renderer.joins_bytes`."""
        self._decode = decode
        self._silent = silent
        self._joins_bytes = joins_bytes
        self._ids: list[int] = []
        # decoding depends on the ids before: new text is decoded together with the last emitted piece
        self._context = 0
        self._emitted = 0

    @classmethod
    def of(cls, renderer: Renderer) -> Detokenizer:
        """For one response."""
        return cls(renderer.decode, silent=renderer.silent_ids, joins_bytes=renderer.joins_bytes)

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids complete."""
        new = [index for index in ids if index not in self._silent]
        begins = self._emitted == len(self._ids)
        self._ids += new
        end = len(self._ids)
        if not (begins and self._joins_bytes and _BROKEN not in (text := self._decode(new))):
            text = self._pending(end)
            if not text or text.endswith(_BROKEN):
                text, end = self._never_completed(text)
            if not text:
                return ""
        self._context, self._emitted = self._emitted, end
        return text

    def _never_completed(self, text: str) -> tuple[str, int]:
        """The start of a text whose broken characters no later token completes, and the first id after it."""
        latest = len(self._ids) - LONGEST_CHARACTER
        for end in range(latest, max(latest - LONGEST_CHARACTER, self._emitted), -1):
            start = self._pending(end)
            if start and text.startswith(start):
                return start, end
        return "", self._emitted

    def finish(self) -> str:
        """The remaining text; incomplete characters become U+FFFD."""
        text = self._pending(len(self._ids))
        self._context = self._emitted = len(self._ids)
        return text

    def _pending(self, end: int) -> str:
        before = self._decode(self._ids[self._context : self._emitted])
        return self._decode(self._ids[self._context : end])[len(before) :]


class StopStrings:
    """Cuts a text before the first of the stop strings."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._begun = tuple(_Begun(stop) for stop in stops if stop)
        self._held = ""
        self.matched: str | None = None
        """The stop string that was found; the text ends before it."""

    def push(self, text: str) -> str:
        """The text up to the possible beginning of a stop string, which is held back."""
        if self.matched is not None:
            return ""
        if not self._held and not any(begun.stop[0] in text for begun in self._begun):
            return text
        text, new = self._held + text, text
        for at, character in enumerate(new, start=len(self._held) + 1):
            # the first to be complete, then the longest: so the cuts between pieces do not matter
            done = [begun.stop for begun in self._begun if begun.read(character)]
            if done:
                self.matched, self._held = max(done, key=len), ""
                return text[: at - len(self.matched)]
        keep = len(text) - max((begun.length for begun in self._begun), default=0)
        text, self._held = text[:keep], text[keep:]
        return text

    def finish(self) -> str:
        """The text that was held back."""
        text, self._held = self._held, ""
        return text


class _Begun:
    """How much of one stop string the text ends with (Knuth, Morris and Pratt), in linear time."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0
        self._shorter = [0]
        """Entry n - 1: the next shorter beginning of the stop that its first n characters end with."""

    def read(self, character: str) -> bool:
        """Whether this character completes the stop."""
        self.length = self._after(self.length, character)
        if self.length > len(self._shorter):
            self._shorter.append(self._after(self._shorter[-1], self.stop[self.length - 1]))
        return self.length == len(self.stop)

    def _after(self, length: int, character: str) -> int:
        while length and self.stop[length] != character:
            length = self._shorter[length - 1]
        return length + 1 if self.stop[length] == character else 0
