"""A coding agent's session, which grows by calls and results, and a tokenizer as large as real ones.

The words are the standard library's sources, so that they are as long, as indented and as repetitive as what
agents read.
"""

from __future__ import annotations

import json
import sysconfig
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.fakes.models import QWEN3_MARKERS, QWEN3_SPECIALS
from tests.fakes.templates import QWEN3_TEMPLATE

VOCABULARY = 32_000
"""Ids learned from SOURCES bytes; larger vocabularies have hardly faster tokenizers."""
SOURCES = 6_000_000
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern by which Qwen's tokenizers split a text."""
MESSAGES = 60
SYSTEM, RESULT, TOOLS = 16_000, 2_700, 12
"""Characters of the system prompt and of a tool result, and the number of tools: 25,000 tokens at the end."""


def agent_model(folder: Path) -> Path:
    """A model folder without weights: a tokenizer as Qwen's are built, and Qwen3's chat template."""
    kept = Path("build/benchmarks") / f"tokenizer-{VOCABULARY}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        _trained().save(str(kept))
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_bytes(kept.read_bytes())
    config = {"eos_token": "<|im_end|>", "chat_template": QWEN3_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([sources()[:SOURCES]], trainer)
    tokenizer.add_special_tokens(list(QWEN3_SPECIALS))
    tokenizer.add_tokens(list(QWEN3_MARKERS))
    return tokenizer


@cache
def sources() -> str:
    """The standard library's modules, one after the other."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def passage(random: Random, characters: int) -> str:
    """Some of the sources."""
    begin = random.randrange(len(sources()) - characters)
    return sources()[begin : begin + characters]


class AgentSession:
    """A session as its agent keeps it: the whole conversation, sent with each request."""

    def __init__(self, number: int) -> None:
        self._random = Random(number)
        system = f"You are a coding agent in session {number}.\n{passage(Random(0), SYSTEM)}"
        asked = passage(self._random, 400)
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": f"Session {number}: find out why this fails.\n{asked}"},
        ]
        self._tools = [_tool(place) for place in range(TOOLS)]

    def body(self, **more: Any) -> dict[str, Any]:
        """The next request."""
        return {"model": "tiny", "messages": list(self.messages), "tools": self._tools} | more

    def take(self, message: dict[str, Any]) -> None:
        """Run the calls of an answer: each result is a part of a file."""
        self.messages.append(message)
        for call in message["tool_calls"]:
            result = passage(self._random, self._random.randrange(RESULT // 2, 3 * RESULT // 2))
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def _tool(place: int) -> dict[str, Any]:
    parameters = {
        name: {"type": "string", "description": passage(Random(100 * place + at), 150)}
        for at, name in enumerate(("path", "pattern", "range"))
    }
    return {
        "type": "function",
        "function": {
            "name": f"tool_{place}",
            "description": passage(Random(place), 300),
            "parameters": {"type": "object", "properties": parameters, "required": ["path"]},
        },
    }
