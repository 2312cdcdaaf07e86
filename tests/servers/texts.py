"""Texts on which tokenizers differ: languages, code, digits, white space, emoji, special tokens; seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator

PARTS = (
    *(
        "Hello",
        "world",
        "I've",
        "they'LL",
        "don't",
        "'s",
        "naïve",
        "größer",
        "Straße",
        "façade",
        "coöperate",
        "ﬁne",
    ),
    *(
        "Привет",
        "мир",
        "Ελληνικά",
        "שלום",
        "مرحبا",
        "नमस्ते",
        "ไทย",
        "កាន់តែ",
        "中文字符",
        "日本語です",
        "한국어",
        "ქართული",
    ),
    *(
        "1",
        "22",
        "333",
        "4444",
        "12345678",
        "3.14159",
        "1,000,000",
        "0x1F",
        "²³",
        "½",
        "٣٤",
        "Ⅷ",
        "2026-11-26",
    ),
    *(" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u200b", "        "),
    *("😀", "👩‍💻", "🏳️‍🌈", "👍🏽", "✅", "🦙🦙", "e\u0301", "\ufeff", "�"),
    *(
        "def f(x):\n    return x**2",
        "if (a != b) { c += 1; }",
        "<div class='x'>",
        "</a>",
        "a->b",
        "::",
        "//",
        "/* */",
    ),
    *(
        "SELECT * FROM t;",
        "```python\n",
        "```",
        "{}[]()",
        "$%^&*",
        "!!!???",
        "...",
        "—",
        "“q”",
        "http://a.b/c?d=e#f",
    ),
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<s>",
        "</s>",
        "<unk>",
        "<|eot_id|>",
        "<tool_call>",
        "<|im_",
        "[INST]",
    ),
    *(
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "==========",
        "ABCdefGHI",
        "snake_case_name",
        "CamelCase",
        "x" * 100,
    ),
)


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Up to twelve parts each, with spaces between some; and any characters at all in every tenth."""
    draw = random.Random(seed)
    for index in range(count):
        if index % 10 == 0:
            points = (draw.choice((draw.randrange(1, 0x250), draw.randrange(1, 0xD800))) for _ in range(20))
            yield "".join(map(chr, points))
            continue
        parts = draw.choices(PARTS, k=draw.randint(1, 12))
        yield "".join(part + draw.choice(("", "", " ")) for part in parts)
