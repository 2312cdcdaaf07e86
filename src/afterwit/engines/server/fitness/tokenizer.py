"""Whether a server cuts a text into the ids that the model's folder cuts it into."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from afterwit.core.errors import SettingError
from afterwit.engines.server.client import ServerClient
from afterwit.wire.model_text.folder import special_tokens

WORDS = 'Read notes/todo.txt, then answer: {"total": 1207.5} — naïve? 東京 🙂\n\n\tdone'
"""A text that different tokenizers cut differently."""


async def same_tokens(
    client: ServerClient, folder: Path, served: str, *, named: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """The ids of a text. SettingError unless the server and the folder cut it into the same ones.

    `served` is what the server serves, for people; `named` joins the question, for servers of several models.
    """
    words = await asyncio.to_thread(words_of, folder)
    body = {"prompt": words, "add_special_tokens": False, **(named or {})}
    theirs = tuple((await client.post("/tokenize", body)).json["tokens"])
    tokenizer = await asyncio.to_thread(tokenizer_of, folder)
    ours = tuple(tokenizer.encode(words, add_special_tokens=False).ids)
    if theirs != ours:
        raise SettingError(
            f"the server at {client.url} serves {served}, whose tokenizer is not that of {folder}: of one "
            f"text it makes {len(theirs)} ids and the folder {len(ours)}; start both with the same model"
        )
    return ours


def words_of(folder: Path) -> str:
    """`WORDS` and the model's own special tokens, which tell relatives apart."""
    return WORDS + "".join(special_tokens(folder).values())


def tokenizer_of(folder: Path) -> Tokenizer:
    """The folder's tokenizer. SettingError if it cannot be read."""
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise SettingError(f"{path} cannot be read: {error}") from error
