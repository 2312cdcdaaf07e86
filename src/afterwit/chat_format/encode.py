"""From text to ids, and from sampled ids to text while they arrive, up to a stop string.

Only new text is tokenised: an agent's prompt is mostly its last prompt.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from random import Random
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from afterwit.byte_cache import ByteCache

if TYPE_CHECKING:
    from afterwit.chat_format.render import Renderer

SHORTEST = 256
"""Characters of a piece, except a text's last one: shorter pieces cost more to cache than to tokenise."""

MOST_BYTES = 64 * 2**20
"""Bytes of the cached pieces, as text and ids: 300 conversations of 25,000 tokens."""

ID_BYTES = struct.calcsize("i")

MARK = "\ufdd0"
"""Follows the first character of a token that is text. Unicode has no such character."""


class Encoder:
    """Ids of texts. Its methods may be called from any thread.

    A text is cut into pieces, whose ids are cached by their text, whatever conversation they are in.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        texts: Collection[str],
        *,
        tokenizer_hash: str = "",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`texts` contain the tokens that structure conversations: the chat templates. Tokenizers of one hash
        are checked once in a process."""
        self._tokenizer = tokenizer
        control = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        self._literal = Literal(control)
        self._control = pattern_of(control)
        self._pattern = pattern_of(cut_tokens(tokenizer, texts, tokenizer_hash))
        self._packed = ByteCache(
            self._pack, most_bytes=most_bytes, size=lambda text, ids: getsizeof(text) + getsizeof(ids)
        )

    @property
    def cuts(self) -> bool:
        """Whether texts are cut; if not, every text is tokenised as a whole."""
        return self._pattern is not None

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text; nothing is added to it. Control tokens that are marked are text, see `Literal`."""
        if self._pattern is None or len(text) <= SHORTEST:
            return tuple(self._tokenised(text)) if text else ()
        joined = b"".join(map(self._packed, cut(text, self._pattern, SHORTEST)))
        return struct.unpack(f"{len(joined) // ID_BYTES}i", joined)

    def _pack(self, text: str) -> bytes:
        ids = self._tokenised(text)
        return struct.pack(f"{len(ids)}i", *ids)

    def _tokenised(self, text: str) -> list[int]:
        if MARK not in text or self._control is None:
            return _ids(self._tokenizer, text)
        ids = []
        for stretch in filter(None, self._control.split(text)):
            if MARK in stretch:
                ids += _ids(self._blind, self._literal.unmarked(stretch))
            else:
                ids += _ids(self._tokenizer, stretch)
        return ids

    @cached_property
    def _blind(self) -> Tokenizer:
        tokenizer = Tokenizer.from_str(self._tokenizer.to_str())
        tokenizer.encode_special_tokens = True
        return tokenizer


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    # only a batch skips the computation of each id's place in the text
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoding.ids
    return ids


class Literal:
    """Marks the control tokens in values, and takes the marks out."""

    def __init__(self, tokens: Iterable[str]) -> None:
        longer = [token for token in tokens if len(token) > 1]
        self._written = pattern_of(longer)
        self._marked = pattern_of([token[0] + MARK + token[1:] for token in longer])

    def marked(self, value: Any) -> Any:
        """The JSON value with every control token in its strings marked, in names of fields too."""
        if isinstance(value, str):
            written = self._written
            return written.sub(lambda found: found[0][0] + MARK + found[0][1:], value) if written else value
        if isinstance(value, dict):
            return {self.marked(key): self.marked(held) for key, held in value.items()}
        return [self.marked(held) for held in value] if isinstance(value, list | tuple) else value

    def unmarked(self, text: str) -> str:
        marked = self._marked
        return marked.sub(lambda found: found[0].replace(MARK, "", 1), text) if marked else text


def pattern_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """Finds the longest of the tokens at each place, as its one group; None without tokens."""
    tree = _tree(tokens)
    return re.compile(f"({tree})") if tree else None


def _tree(texts: Iterable[str]) -> str:
    """A pattern of any of the texts as a tree: a thousand tokens may share their beginning."""
    heads: defaultdict[str, list[str]] = defaultdict(list)
    ends = False
    for text in texts:
        if text:
            heads[text[0]].append(text[1:])
        else:
            ends = True
    branches = [re.escape(head) + _tree(tails) for head, tails in heads.items()]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + ("?" if ends else "")


CHECKS = 64
"""Random texts that a tokenizer must pass."""

PARTS = 16
"""Parts of each: a token, and before it tokens, beginnings and ends of tokens, and FILLING."""

# fmt: off
FILLING = (
    " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "\u2581", "\u0120", "\0",
    "a", "The file", "read_file(", " 42.5e-3", "_", "don't", "\u00dcber", "\u00df", "\ufb01", "\uff1c",
    "\uff5c", "e\u0301", "\u0301", "\u1100\u1161\u11a8", "\u4f60\u597d", "\u05e9\u05dc\u05d5\u05dd",
    "\u0e2a\u0e27",
    "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\ufffd", "<", "|>", "</", "[", "]", '{"name": "',
)

# fmt: on


JOINS: dict[tuple[str, tuple[str, ...]], bool] = {}
"""Results of `joins`, by the tokenizer's hash and the tokens."""


def cut_tokens(tokenizer: Tokenizer, texts: Collection[str], tokenizer_hash: str = "") -> tuple[str, ...]:
    """The added tokens in these texts before which any text may be cut.

    The first character of each is in no token further on: no other match can contain its start. Nor may a
    token with the same first character take the white space before it, or need spaces around it. Tokens of
    normalised text are found later, in the stretches between the others. Empty if there is none, or if the
    tokenizer fails the check.
    """
    raw = [token for token in tokenizer.get_added_tokens_decoder().values() if not token.normalized]
    inner = {character for token in raw for character in token.content[1:]}
    unsafe = inner | {token.content[0] for token in raw if token.lstrip or token.single_word}
    found = (token.content for token in raw if token.content[0] not in unsafe)
    tokens = tuple(
        token for token in found if not token[0].isspace() and any(token in text for text in texts)
    )
    known = tokenizer_hash, tokens
    if tokens and (not tokenizer_hash or known not in JOINS):
        JOINS[known] = joins(tokenizer, tokens)
    return tokens if JOINS.get(known) else ()


def joins(tokenizer: Tokenizer, tokens: Sequence[str]) -> bool:
    """Whether random texts, cut before each of the tokens, have the ids of the whole."""
    pattern = pattern_of(tokens)
    for text in _random_texts(tokenizer, tokens):
        whole, *pieces = tokenizer.encode_batch_fast([text, *cut(text, pattern, 1)], add_special_tokens=False)
        if [index for piece in pieces for index in piece.ids] != whole.ids:
            return False
    return True


def _random_texts(tokenizer: Tokenizer, tokens: Sequence[str]) -> Iterator[str]:
    random = Random(0)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    left = iter(random.sample(added, len(added)))
    for _ in range(CHECKS):
        text: list[str] = []
        for _ in range(max(PARTS, len(added) // CHECKS + 1)):
            broken = random.choice(added)
            at = random.randrange(len(broken))
            around = (broken[:at], broken[at:], random.choice(tokens), *random.choices(FILLING, k=3))
            text += [*random.sample(around, 3), next(left, broken)]
        yield "".join(text)


def cut(text: str, pattern: re.Pattern[str] | None, shortest: int) -> Iterator[str]:
    """The pieces of a text, cut before tokens, each but the last of at least `shortest` characters.

    A cut depends only on the text before it: texts with the same beginning share their first pieces.
    """
    cuts = [0]
    for found in () if pattern is None else pattern.finditer(text):
        if found.start() - cuts[-1] >= shortest:
            cuts.append(found.start())
    yield from (text[begin:end] for begin, end in pairwise([*cuts, len(text)]))


BROKEN = "\ufffd"

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(byte): byte for byte in _SHOWN} | {
    chr(0x100 + place): byte for place, byte in enumerate(sorted(set(range(0x100)) - set(_SHOWN)))
}
"""The byte of each character of byte-level vocabularies: itself, if Latin-1 can print it."""


def bytes_of(token: str) -> bytes | None:
    """The bytes of a token of a vocabulary over bytes, or of a byte of one over pieces; None for others."""
    if (byte := _BYTE.fullmatch(token)) is not None:
        return bytes.fromhex(byte[1])
    return bytes(map(_BYTES.__getitem__, token)) if _BYTES.keys() >= set(token) else None


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
        return cls(renderer.decode, silent=renderer.silent_ids, joins_bytes=renderer.joins_bytes)

    def push(self, ids: Iterable[int]) -> str:
        new = [index for index in ids if index not in self._silent]
        begins = self._emitted == len(self._ids)
        self._ids += new
        end = len(self._ids)
        if not (begins and self._joins_bytes and BROKEN not in (text := self._decode(new))):
            text = self._pending(end)
            if not text or text.endswith(BROKEN):
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

    def skip(self, text: str) -> str:
        """A text that no stop string begins in, after what was held back."""
        for begun in self._begun:
            begun.length = 0
        return self.finish() + text

    def finish(self) -> str:
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
