"""A folder on a disk that all machines reach: drafts are flushed, then renamed or linked into place."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS
from pathlib import Path
from uuid import uuid4

from afterwit.checkpoints.files import sync
from afterwit.checkpoints.remote import DRAFTS, FILES, MANIFESTS, name_of, numbers_of
from afterwit.errors import VersionsRefused, VersionsUnavailable, VersionTaken

ABANDONED_S = 86_400.0
"""Age of a draft whose writer is dead."""


class FolderRemote:
    """`root` has to exist: an empty mount point would be taken for it otherwise. See the port."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.place = str(root)

    def numbers(self) -> list[int]:
        with self._asked():
            return numbers_of(os.listdir(self._folder(MANIFESTS)))

    def manifests(self, numbers: Sequence[int]) -> dict[int, str]:
        found = {}
        with self._asked():
            folder = self._folder(MANIFESTS)
            for number in numbers:
                with suppress(FileNotFoundError):
                    found[number] = (folder / name_of(number)).read_text(errors="replace")
        return found

    def commit(self, number: int, text: str) -> None:
        with self._asked(), self._draft() as draft:
            draft.write_text(text)
            sync(draft)
            folder = self._folder(MANIFESTS)
            try:
                os.link(draft, folder / name_of(number))
            except FileExistsError as error:
                if self.manifests([number]).get(number) != text:
                    raise VersionTaken(f"{self.place} has another version {number}") from error
            sync(folder)

    def files(self) -> Mapping[str, int]:
        with self._asked():
            return {entry.name: entry.stat().st_size for entry in os.scandir(self._folder(FILES))}

    def put(self, digest: str, source: Path) -> None:
        with self._asked(), self._draft() as draft:
            shutil.copyfile(source, draft)
            sync(draft)
            folder = self._folder(FILES)
            draft.rename(folder / digest)
            sync(folder)

    def get(self, digest: str, target: Path) -> None:
        with self._asked():
            shutil.copyfile(self._folder(FILES) / digest, target)

    def remove(self, digests: Collection[str]) -> None:
        with self._asked():
            for digest in digests:
                (self._folder(FILES) / digest).unlink(missing_ok=True)

    def check(self) -> None:
        with self._asked(), self._draft() as first, self._draft() as second:
            for draft in self._folder(DRAFTS).iterdir():
                if time.time() - draft.stat().st_mtime > ABANDONED_S:
                    draft.unlink(missing_ok=True)
            first.touch()
            os.link(first, second)

    def _folder(self, name: str) -> Path:
        folder = self._root / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """A new name beside what is there; whatever is left of it goes."""
        draft = self._folder(DRAFTS) / uuid4().hex
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Say what an OSError means for the folder."""
        try:
            yield
        except OSError as error:
            raise self._said(error) from error

    def _said(self, error: OSError) -> VersionsUnavailable:
        if not self._root.is_dir():
            return VersionsRefused(
                f"there is no folder {self.place}: mount it or make it, or correct versions.url"
            )
        if error.errno in (ENOSPC, EDQUOT):
            return VersionsRefused(
                f"{self.place} has no room ({error.strerror}): make some, or lower learner.keep_versions"
            )
        if error.errno in (EACCES, EPERM, EROFS):
            return VersionsRefused(
                f"{self.place} refuses ({error.strerror}): this user has to write there, hard links included"
            )
        return VersionsUnavailable(f"{self.place} cannot be read or written now ({error})")
