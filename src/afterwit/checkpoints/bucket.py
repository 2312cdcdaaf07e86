"""Object storage by fsspec and s3fs: an object is there whole or not at all, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from afterwit.checkpoints.folder import FolderRemote
from afterwit.checkpoints.remote import (
    DRAFTS,
    FILES,
    MANIFESTS,
    S3,
    Remote,
    VersionsSettings,
    name_of,
    numbers_of,
)
from afterwit.errors import VersionsRefused, VersionsUnavailable, VersionTaken

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


NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "ProfileNotFound")


NO_RIGHTS = (
    "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "Forbidden", "InvalidAccessKeyId",
    "InvalidToken", "SignatureDoesNotMatch",
)  # fmt: skip


NO_ROOM = (
    "507", "InsufficientCapacity", "InsufficientStorage", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
)  # fmt: skip


BUSY = ("OperationAborted", "RequestTimeout", "SlowDown")


LONGEST = 200
"""Characters of what a server says that are passed on."""


def explained(place: str, endpoint: str | None, error: Exception) -> VersionsUnavailable:
    """What an error of s3fs or botocore means for the versions at `place`."""
    at = f"{place} at {endpoint}" if endpoint else place
    said = _answer(error)
    if said is None:
        if type(error).__name__ in NO_CREDENTIALS:
            return VersionsRefused(
                f"there are no credentials for {at}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_PROFILE"
            )
        if isinstance(error, FileNotFoundError):
            return VersionsUnavailable(f"{at} has no {_short(error)} any more")
        if isinstance(error, ValueError):
            return VersionsRefused(f"{at} cannot be used: {_short(error)}; correct versions.url")
        return VersionsUnavailable(f"{at} does not answer: {_short(error)}")
    status, code, message = said
    words = f"{code}: {message}" if message else code
    if code == "NoSuchBucket":
        bucket = place.partition("://")[2].partition("/")[0]
        return VersionsRefused(f"there is no bucket {bucket} for {at}: make it, or correct versions.url")
    if code in NO_ROOM or status == 507:
        return VersionsRefused(f"{at} has no room ({words}): make some, or lower learner.keep_versions")
    if code in NO_RIGHTS or status == 403:
        return VersionsRefused(
            f"{at} refuses ({words}): the credentials have to list, read, write and delete objects there"
        )
    if status >= 500 or code in BUSY:
        return VersionsUnavailable(f"{at} cannot take or give anything now ({words})")
    return VersionsRefused(f"{at} refuses ({words})")


def _answer(error: BaseException | None) -> tuple[int, str, str] | None:
    """Status, code and message of the server's answer, wherever in the chain of causes it is."""
    while error is not None:
        response: dict[str, Any] | None = getattr(error, "response", None)
        if isinstance(response, dict) and "Error" in response:
            told = response["Error"]
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return status, str(told.get("Code", status)), str(told.get("Message", ""))[:LONGEST]
        error = error.__cause__
    return None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__


def remote_of(settings: VersionsSettings) -> Remote | None:
    """None without a URL. Nothing is asked of it yet."""
    if settings.url is None:
        return None
    if urlsplit(settings.url).scheme == S3:
        return BucketRemote(settings.url, endpoint=settings.endpoint)
    return FolderRemote(Path(settings.url).expanduser())
