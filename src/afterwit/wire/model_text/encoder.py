"""From text to ids, of which only what is new is computed: an agent's prompt is mostly its last prompt."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from functools import cached_property
from itertools import pairwise
from sys import getsizeof

from tokenizers import Tokenizer

from afterwit.core.kept import Kept
from afterwit.wire.model_text.byte_pairs import BytePairs
from afterwit.wire.model_text.cuts import cut, cut_tokens, pattern_of
from afterwit.wire.model_text.literal import MARK, Literal

SHORTEST = 256
"""Characters of a piece, the last one of a text excepted: shorter ones cost more to keep than to tokenise."""
MOST_BYTES = 64 * 2**20
"""Bytes of the pieces that are kept, as their text and ids: 300 conversations of 25,000 tokens."""
ID_BYTES = struct.calcsize("i")


class Encoder:
    """Ids of texts. Its methods may be called from any thread.

    Pieces are found by their whole text, whichever conversation they were in, and the ones that were not used
    for longest are dropped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        texts: Collection[str],
        *,
        byte_pairs: BytePairs | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`texts` name the tokens that conversations are written with: the chat templates. `byte_pairs` reads
        as the tokenizer does, and faster; None if there is no such thing for it."""
        self._tokenizer, self._byte_pairs = tokenizer, byte_pairs
        control = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        self._literal = Literal(control)
        self._control = pattern_of(control)
        self._pattern: re.Pattern[str] | None = pattern_of(cut_tokens(tokenizer, texts))
        self._packed = Kept(
            self._pack, most_bytes=most_bytes, size=lambda text, ids: getsizeof(text) + getsizeof(ids)
        )

    @property
    def cuts(self) -> bool:
        """Whether texts are cut; if not, every text is tokenised whole."""
        return self._pattern is not None

    @property
    def kept_bytes(self) -> int:
        """Bytes of the pieces that are kept."""
        return self._packed.bytes

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text; nothing is added to it. Control tokens that are marked are text, see `literal`."""
        if self._pattern is None or len(text) <= SHORTEST:
            return tuple(self._tokenised(text)) if text else ()
        joined = b"".join(map(self._packed, cut(text, self._pattern, SHORTEST)))
        return struct.unpack(f"{len(joined) // ID_BYTES}i", joined)

    def _pack(self, text: str) -> bytes:
        ids = self._tokenised(text)
        return struct.pack(f"{len(ids)}i", *ids)

    def _tokenised(self, text: str) -> list[int]:
        if MARK not in text or self._control is None:
            return self._plain(text)
        ends = [0, *(place for found in self._control.finditer(text) for place in found.span()), len(text)]
        return [
            index for begin, end in pairwise(ends) if begin < end for index in self._stretch(text[begin:end])
        ]

    def _stretch(self, text: str) -> list[int]:
        """Ids of a control token, or of a text between two of them."""
        if MARK not in text:
            return self._plain(text)
        return _ids(self._blind, self._literal.unmarked(text))

    def _plain(self, text: str) -> list[int]:
        """Ids of a text without marks."""
        fast = self._byte_pairs
        return fast(text) if fast is not None and fast.takes(text) else _ids(self._tokenizer, text)

    @cached_property
    def _blind(self) -> Tokenizer:
        """Reads control tokens as text. It is made when a text first holds one."""
        tokenizer = Tokenizer.from_str(self._tokenizer.to_str())
        tokenizer.encode_special_tokens = True
        return tokenizer


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    # a batch of one is the only call that does not also compute the place of each id in the text
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoding.ids
    return ids
