"""Object storage by fsspec and s3fs: an object is there whole or not at all, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.checkpoints.remote.names import DRAFTS, FILES, MANIFESTS, name_of, numbers_of
from afterwit.checkpoints.remote.refusals import explained
from afterwit.core.errors import VersionsRefused, VersionTaken

CONNECT_S = 10
READ_S = 60
TRIES = 3
"""Of a request that a busy server refuses or that breaks off; the stages try again later besides."""


class BucketRemote:
    """`url` is `s3://bucket/folder`. See the port."""

    def __init__(self, url: str, *, endpoint: str | None = None) -> None:
        self.place = url.rstrip("/")
        self._endpoint = endpoint
        self._root = self.place.partition("://")[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.place, self._endpoint)

    @cached_property
    def _objects(self) -> Any:
        import fsspec
        import s3fs  # noqa: F401  # names the extra if it is missing

        found = fsspec.filesystem(
            "s3",
            endpoint_url=self._endpoint,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": CONNECT_S,
                "read_timeout": READ_S,
                "retries": {"mode": "standard", "max_attempts": TRIES},
            },
        )
        found.retries = TRIES
        return found

    def numbers(self) -> list[int]:
        with self._asked():
            found = self._objects.find(f"{self._root}/{MANIFESTS}")
        return numbers_of(path.rpartition("/")[2] for path in found)

    def manifests(self, numbers: Sequence[int]) -> dict[int, str]:
        paths = {self._manifest(number): number for number in numbers}
        with self._asked():
            found = self._objects.cat(list(paths), on_error="return") if paths else {}
            texts = {paths[path]: self._text(answer) for path, answer in found.items()}
        return {number: text for number, text in texts.items() if text is not None}

    def commit(self, number: int, text: str) -> None:
        try:
            with self._asked():
                self._objects.pipe_file(self._manifest(number), text.encode(), mode="create")
        except VersionsRefused as error:
            there = self.manifests([number]).get(number)
            if there is None:
                raise
            if there != text:  # else an answer was lost, and the try after it found this one's own
                raise VersionTaken(f"{self.place} has another version {number}") from error

    def files(self) -> Mapping[str, int]:
        with self._asked():
            found = self._objects.find(f"{self._root}/{FILES}", detail=True)
        return {path.rpartition("/")[2]: entry["size"] for path, entry in found.items()}

    def put(self, digest: str, source: Path) -> None:
        with self._asked():
            self._objects.put_file(str(source), f"{self._root}/{FILES}/{digest}")

    def get(self, digest: str, target: Path) -> None:
        with self._asked():
            self._objects.get_file(f"{self._root}/{FILES}/{digest}", str(target))

    def remove(self, digests: Collection[str]) -> None:
        with self._asked():
            for digest in digests:  # one by one: of many at once nobody says which were refused
                self._objects.rm_file(f"{self._root}/{FILES}/{digest}")

    def check(self) -> None:
        path = f"{self._root}/{DRAFTS}/{uuid4().hex}"
        with self._asked():
            self._objects.find(f"{self._root}/{DRAFTS}")
            self._objects.pipe_file(path, b"1", mode="create")
            try:
                self._objects.pipe_file(path, b"2", mode="create")
            except OSError:
                with suppress(FileNotFoundError):
                    self._objects.cat_file(path)
            else:
                raise VersionsRefused(
                    f"{self.place} lets one object be made twice (it ignores If-None-Match), so that two "
                    "machines could write one version: use a server that knows conditional writes"
                )
            finally:
                self._objects.rm_file(path)

    def _manifest(self, number: int) -> str:
        return f"{self._root}/{MANIFESTS}/{name_of(number)}"

    def _text(self, answer: bytes | Exception) -> str | None:
        """A manifest's text; None if it is not there. Raises what else was answered."""
        if isinstance(answer, FileNotFoundError) and answer.__cause__ is None:
            return None  # with a cause it is the server's own word: there is no bucket
        if isinstance(answer, Exception):
            raise answer
        return answer.decode(errors="replace")

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Say what an error of the library means."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise explained(self.place, self._endpoint, error) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("aiobotocore", "aiohttp", "botocore"):
                raise
            raise explained(self.place, self._endpoint, error) from error


def _opened(place: str, endpoint: str | None) -> BucketRemote:
    return BucketRemote(place, endpoint=endpoint)
