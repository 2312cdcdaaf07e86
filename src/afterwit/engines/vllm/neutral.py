"""The base as an adapter that adds nothing: on a CPU, vLLM mixes adapters into what has none.

It computes that with whatever lies in the last of its places for adapters, when both answer in one batch.
What has the adapter of zeros is computed with that one. No server says what it computes on: all get it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from afterwit.core.errors import EngineError

NAME = "afterwit-base-"
"""How the adapter of zeros is called on the server, with something behind that tells engines apart."""
WAIT_S = 30.0
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class NeutralBase:
    """Which name the base has on a server, and how many responses ask for it without one."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        """The adapter of zeros, while the server has it."""
        self.made: str | None = None
        """Its name, if it was put there from here."""
        self._folder: Path | None = None
        self._plain = 0
        self._none_plain = asyncio.Event()
        self._none_plain.set()

    @contextmanager
    def asking(self) -> Iterator[str | None]:
        """The name to ask for the base by, now; None: it has none yet."""
        if self.name is not None:
            yield self.name
            return
        self._plain += 1
        self._none_plain.clear()
        try:
            yield None
        finally:
            self._plain -= 1
            if not self._plain:
                self._none_plain.set()

    def lost(self, name: str) -> None:
        """The server has no adapter of this name any more: it was started anew."""
        if self.name == name:
            self.name = None

    async def make(self, like: Path) -> tuple[str, Path]:
        """A name and a folder for an adapter of zeros in the form of another. EngineError if it fails."""
        await self.remove()
        name = NAME + uuid4().hex[:8]
        self._folder = like.parent / f".{name}"
        await asyncio.to_thread(_write_zeros, like, self._folder)
        return name, self._folder

    async def serves(self, name: str) -> None:
        """The server has it. Returns when no response is under way that asked for the base without it.

        It waits a while and no longer: a client may read slowly, and on a server without adapters of others
        such a response stays right until there are as many as it has places for.
        """
        self.name = self.made = name
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._none_plain.wait()

    async def remove(self) -> None:
        """Its folder is needed for as long as the server may read it again."""
        folder, self._folder, self.name, self.made = self._folder, None, None, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def known_neutral(models: Iterable[str]) -> str | None:
    """The adapter of zeros that an engine has on the server; None if there is none."""
    return next((name for name in sorted(models) if name.startswith(NAME)), None)


def _write_zeros(like: Path, folder: Path) -> None:
    """The adapter in `like` with zeros in place of its weights: header and sizes stay. Zero bytes are 0."""
    try:
        folder.mkdir(mode=0o700)
        shutil.copyfile(like / CONFIG, folder / CONFIG)
        with (like / WEIGHTS).open("rb") as source, (folder / WEIGHTS).open("wb") as zeros:
            length = source.read(8)
            header = source.read(struct.unpack("<Q", length)[0])
            ends = [each["data_offsets"][1] for name, each in json.loads(header).items() if name[:2] != "__"]
            zeros.write(length + header)
            zeros.truncate(8 + len(header) + max(ends, default=0))
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise EngineError(f"the adapter in {like} cannot be read: {error}") from error
