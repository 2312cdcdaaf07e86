"""From text to ids, of which only what is new is computed: an agent's prompt is mostly its last prompt."""

from __future__ import annotations

import re
import sys
from array import array
from collections import OrderedDict
from collections.abc import Collection, Sequence
from threading import Lock

from tokenizers import Tokenizer

from afterwit.wire.model_text.cuts import cut, cut_tokens, pattern_of

SHORTEST = 256
"""Characters of a piece, the last one of a text excepted: shorter ones cost more to keep than to tokenise."""
MOST_BYTES = 64 * 2**20
"""Bytes of the pieces that are kept, as their text and ids: 300 conversations of 25,000 tokens."""
OVERHEAD = 200
"""Bytes that keeping a piece takes beside its text and ids."""


class Encoder:
    """Ids of texts. Its methods may be called from any thread.

    Pieces are found by their whole text, whichever conversation they were in, and the ones that were not used
    for longest are dropped.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Collection[str], *, most_bytes: int = MOST_BYTES) -> None:
        """`texts` name the tokens that conversations are written with: the chat templates."""
        self._tokenizer = tokenizer
        self._pattern: re.Pattern[str] | None = pattern_of(cut_tokens(tokenizer, texts))
        self._pieces = _Pieces(most_bytes)

    @property
    def cuts(self) -> bool:
        """Whether texts are cut; if not, every text is tokenised whole."""
        return self._pattern is not None

    @property
    def kept_bytes(self) -> int:
        """Bytes of the pieces that are kept."""
        return self._pieces.size

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text; nothing is added to it."""
        if self._pattern is None or len(text) <= SHORTEST:
            return tuple(self._tokenised([text])[0]) if text else ()
        pieces = list(cut(text, self._pattern, SHORTEST))
        ids = self._pieces.found(pieces)
        missing = list(dict.fromkeys(piece for piece in pieces if piece not in ids))
        if missing:
            new = dict(zip(missing, self._tokenised(missing), strict=True))
            self._pieces.keep(new)
            ids |= new
        joined = array("i")
        for piece in pieces:
            joined += ids[piece]
        return tuple(joined)

    def _tokenised(self, texts: Sequence[str]) -> list[array[int]]:
        # a batch is the only call that does not also compute the place of each id in the text
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [array("i", encoding.ids) for encoding in encodings]


class _Pieces:
    """Ids by text, within a number of bytes, the latest used last."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def found(self, texts: Collection[str]) -> dict[str, array[int]]:
        """The ids of those texts that are kept."""
        with self._lock:
            ids = {text: self._ids[text] for text in texts if text in self._ids}
            for text in ids:
                self._ids.move_to_end(text)
        return ids

    def keep(self, new: dict[str, array[int]]) -> None:
        with self._lock:
            for text, ids in new.items():
                if text not in self._ids:
                    self._ids[text] = ids
                    self.size += _bytes(text, ids)
            while self.size > self._most_bytes:
                self.size -= _bytes(*self._ids.popitem(last=False))


def _bytes(text: str, ids: array[int]) -> int:
    return OVERHEAD + sys.getsizeof(text) + len(ids) * ids.itemsize
