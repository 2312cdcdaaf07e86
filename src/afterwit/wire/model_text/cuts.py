"""Where a text may be cut so that the ids of its pieces, joined, are the ids of the whole.

A tokenizer first looks for its added tokens in the raw text, then reads each stretch between two of them by
itself. So a cut directly before such a token changes no id, unless another token reaches over the cut. The
tokens that none can reach over are found by their texts, and random texts check the tokenizer itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from random import Random

from tokenizers import AddedToken, Tokenizer

CHECKS = 64
"""Random texts that a tokenizer must pass."""
PARTS = 16
"""Parts of each: a token, and before it tokens, beginnings and ends of tokens, and FILLING."""
FILLING = (
    *(" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "\u2581", "\u0120", "\0"),
    *(
        "a",
        "The file",
        "read_file(",
        " 42.5e-3",
        "_",
        "don't",
        "\u00dcber",
        "\u00df",
        "\ufb01",
        "\uff1c",
        "\uff5c",
    ),
    *("e\u0301", "\u0301", "\u1100\u1161\u11a8", "\u4f60\u597d", "\u05e9\u05dc\u05d5\u05dd", "\u0e2a\u0e27"),
    *(
        "\U0001f469\u200d\U0001f4bb",
        "\U0001f1e9\U0001f1ea",
        "\ufffd",
        "<",
        "|>",
        "</",
        "[",
        "]",
        '{"name": "',
    ),
)


def cut_tokens(tokenizer: Tokenizer, texts: Collection[str]) -> tuple[str, ...]:
    """The added tokens that are found in one of the texts and that any text may be cut before.

    Empty if there is none, or if the tokenizer does not pass the check.
    """
    added = list(tokenizer.get_added_tokens_decoder().values())
    tokens = tuple(token for token in _unreachable(added) if any(token in text for text in texts))
    return tokens if tokens and joins(tokenizer, tokens) else ()


def _unreachable(added: Iterable[AddedToken]) -> Iterator[str]:
    """Tokens that begin with a character which no token has further on: no other match can hold their start.

    Nor may a token that begins alike take the white space before it, or be found between spaces only. Those
    that are looked for in normalised text come later, in the stretches between the others.
    """
    raw = [token for token in added if not token.normalized]
    inner = {character for token in raw for character in token.content[1:]}
    choosy = {token.content[0] for token in raw if token.lstrip or token.single_word}
    for token in raw:
        first = token.content[0]
        if first not in inner | choosy and not first.isspace():
            yield token.content


def joins(tokenizer: Tokenizer, tokens: Sequence[str]) -> bool:
    """Whether random texts, cut before each of the tokens, have the ids of the whole."""
    pattern = pattern_of(tokens)
    for text in _random_texts(tokenizer, tokens):
        whole, *pieces = tokenizer.encode_batch_fast([text, *cut(text, pattern, 1)], add_special_tokens=False)
        if [index for piece in pieces for index in piece.ids] != whole.ids:
            return False
    return True


def _random_texts(tokenizer: Tokenizer, tokens: Sequence[str]) -> Iterator[str]:
    """Texts for the check; every added token is in one of them."""
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


def pattern_of(tokens: Sequence[str]) -> re.Pattern[str] | None:
    """What finds the tokens in a text; None without tokens."""
    return re.compile("|".join(map(re.escape, tokens))) if tokens else None


def cut(text: str, pattern: re.Pattern[str] | None, shortest: int) -> Iterator[str]:
    """The pieces of a text, cut before tokens, each but the last of at least `shortest` characters.

    Where it is cut depends only on what comes before: texts that begin alike have their first pieces alike.
    """
    cuts = [0]
    for found in () if pattern is None else pattern.finditer(text):
        if found.start() - cuts[-1] >= shortest:
            cuts.append(found.start())
    yield from (text[begin:end] for begin, end in pairwise([*cuts, len(text)]))
