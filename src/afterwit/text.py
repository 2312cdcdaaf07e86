"""Numbers with their nouns; and foreign text: blocks, thoughts and code in it, halves of surrogate pairs.

All scans take linear time. `ByteCache` keeps what was computed from a text, bounded in bytes.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

_NAMES = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad)"
_TAG = re.compile(rf"[<\[](/?)({_NAMES})[>\]]", re.IGNORECASE)
"""`<think>`, `[THINK]`, `<seed:think>` and the like."""

_CHANNEL = re.compile(r"<\|channel\|?>\s*(\w+)(?:\s*<\|message\|>)?|<channel\|>")
"""The beginning of a channel of harmony or Gemma, or the end of Gemma's thought."""

_BARE = re.compile(r"\Aanalysis(?![\s:.,;])(?:.*assistantfinal|.*)", re.DOTALL)
"""Harmony whose marks a server left out: `analysisThe person thanks.assistantfinal\boxed{1}`."""

_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = re.compile(rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}")
"""In JSON text without escaped backslashes: half of a surrogate pair."""

_BREAKS = [(sign.encode(), b"\\u%04x" % ord(sign)) for sign in "\x85\u2028\u2029"]


def counted(number: int, noun: str) -> str:
    """ "1 turn", "2,000 turns"."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def without_blocks(text: str, *marks: tuple[str, str]) -> str:
    """The text without its blocks. `marks`: opening and closing texts. An opening without a closing stays."""
    kept: list[str] = []
    at = 0
    begins = {mark: text.find(mark[0]) for mark in marks}
    while begun := {mark: begin for mark, begin in begins.items() if begin >= 0}:
        mark = min(begun, key=lambda each: begun[each])
        end = text.find(mark[1], begun[mark] + len(mark[0]))
        if end < 0:
            del begins[mark]
            continue
        kept.append(text[at : begun[mark]])
        at = end + len(mark[1])
        begins |= {each: text.find(each[0], at) for each, begin in begun.items() if begin < at}
    return "".join([*kept, text[at:]])


def without_named_blocks(text: str, tag: re.Pattern[str], instead: str) -> str:
    """The text with each block replaced by `instead`. `tag` matches opening and closing tags: group 1 is the
    slash of a closing one, group 2 the name. An opening tag without a closing one of its name stays."""
    tags = list(tag.finditer(text))
    closings: dict[str, deque[tuple[int, int]]] = {}
    for found in tags:
        if found[1]:
            closings.setdefault(found[2], deque()).append(found.span())
    kept: list[str] = []
    at = 0
    for found in tags:
        ends = closings.get(found[2], deque())
        if found[1] or found.start() < at:
            continue
        while ends and ends[0][0] < found.end():
            ends.popleft()
        if ends:
            kept += [text[at : found.start()], instead]
            at = ends[0][1]
    return "".join([*kept, text[at:]])


def outside_thoughts(words: str) -> str:
    """The text outside the thoughts. One of a thought's two marks may be missing: without the first, the
    thought is all text before the second; without the second, all text after the first."""
    said = _BARE.sub("", words)
    channels = list(_CHANNEL.finditer(said))
    if channels:
        last = channels[-1]
        said = said[last.end() :] if last[1] in (None, "final") else ""
    said = without_named_blocks(said, _TAG, "")
    ends = [tag.end() for tag in _TAG.finditer(said) if tag[1]]
    said = said[ends[-1] :] if ends else said
    begun = _TAG.search(said)
    return said if begun is None else said[: begun.start()]


class Code:
    """Whether a text, read piece by piece, ends within Markdown's code."""

    FENCE = 3
    """Backticks or tildes that open code of several lines; fewer backticks open code within one line."""
    _DELIMITER = re.compile(r"\n|`+|~{3,}")

    def __init__(self) -> None:
        self.within = ""
        """The backticks or tildes that opened the code; empty outside."""

    def read(self, text: str) -> None:
        for run in self._DELIMITER.findall(text):
            if run == "\n":
                self.within = self.within if len(self.within) >= self.FENCE else ""
            elif not self.within:
                self.within = run
            elif run == self.within or (len(self.within) >= self.FENCE and run.startswith(self.within)):
                self.within = ""

    def end(self, text: str, place: int) -> int:
        """The place, from this one on, where the code ends; -1 if it never does."""
        line = text.find("\n", place) if len(self.within) < self.FENCE else -1
        return text.find(self.within, place, len(text) if line < 0 else line)


def prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix. Bisected, because comparing slices is far faster than single ids."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def exact(json_bytes: bytes) -> bytes:
    """A copy to keep: orjson's own bytes hold the buffer in which they were written, up to fifteen times as
    large, and at least four kibibytes."""
    return bytes(memoryview(json_bytes))


def one_line(json_bytes: bytes) -> bytes:
    r"""JSON without the raw line breaks of Unicode: `\u2028` and its like are escaped.

    JSON allows them in texts, but readers of line after line that know Unicode, Python's `splitlines` among
    them, would break there.
    """
    if json_bytes.isascii():
        return json_bytes
    for raw, escaped in _BREAKS:
        json_bytes = json_bytes.replace(raw, escaped)
    return json_bytes


def without_halves(json_text: str) -> str:
    r"""The JSON text with `\ufffd` for each escaped half of a surrogate pair.

    `"\ud83d"` alone is valid JSON, but not a character: no tokenizer, hash or UTF-8 accepts it. Clients write
    it when they cut a text inside an emoji, and models can write it too.
    """
    if "\0" in json_text:  # no JSON
        return json_text
    marked = json_text.replace(r"\\", "\0")  # each other backslash begins an escape
    return _HALF.sub(r"\\ufffd", marked).replace("\0", r"\\")


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 400
"""The approximate size of an entry without its key and its result."""


class ByteCache(Generic[K, V]):
    """The function with a cache. The least recently used results are dropped first. Thread-safe."""

    def __init__(self, function: Callable[[K], V], *, most_bytes: int, size: Callable[[K, V], int]) -> None:
        """`size`: bytes of a key and its result."""
        self._function, self._most_bytes, self._size = function, most_bytes, size
        self._results: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0
        """Bytes in the cache, at most `most_bytes`."""

    def __call__(self, key: K) -> V:
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = self._function(key)
        self.keep(key, result)
        return result

    def keep(self, key: K, result: V) -> None:
        """Add a result that is known already."""
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self.bytes += ENTRY_BYTES + self._size(key, result)
            while self.bytes > self._most_bytes:
                dropped = self._results.popitem(last=False)
                self.bytes -= ENTRY_BYTES + self._size(*dropped)
