"""The place at which several machines share versions: a folder that they all mount, or a bucket.

It holds manifests by number, and files by the SHA-256 of their content: a file that two versions share is
stored once, and no writer can change another's. A version exists there once its manifest does.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EEXIST, ENOSPC, EPERM, EROFS
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from afterwit.checkpoints.manifest import room_in, sync
from afterwit.errors import VersionsRefused, VersionsUnavailable, VersionTaken
from afterwit.ranges import at_least

S3 = "s3"

MANIFESTS, FILES, DRAFTS = "manifests", "files", "drafts"

MANIFEST_NAME = re.compile(r"([0-9]{6})\.json")

ABANDONED_S = 86_400.0
"""Age of a draft whose writer is dead."""

CONNECT_S, READ_S = 10, 60

TRIES = 3
"""Of a request that a busy server refuses or that breaks off. The stages try again later too."""

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

LONGEST_MESSAGE = 200
"""Characters of a server's message that are passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsSettings:
    """A shared place for versions, in addition to `versions/` in the home."""

    url: str | None = None
    """`s3://bucket/folder`, or a folder that all machines reach; unset: only the home. Credentials are
    those of AWS tools (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, a role). Set it in config.toml or the
    environment."""
    endpoint: str | None = None
    """URL of an S3 server other than Amazon's, such as `http://minio.example:9000`."""
    state_every: int = 1
    """Every n-th version goes to `url` with the optimiser's state, which is most of the bytes with whole
    weights. From any other version a machine starts a new optimiser."""

    def __post_init__(self) -> None:
        at_least(self, 1, "state_every")
        if self.url is None:
            if self.endpoint is not None:
                raise ValueError(
                    f"endpoint is {self.endpoint!r}, but url names no bucket: set url = 's3://...'"
                )
            return
        parts = urlsplit(self.url)
        if "@" in parts.netloc:
            raise ValueError(
                "url holds credentials: leave them out, and set AWS_ACCESS_KEY_ID or AWS_PROFILE"
            )
        if parts.scheme == S3:
            if not parts.netloc:
                raise ValueError(f"url is {self.url!r}, which names no bucket: s3://bucket/folder")
        elif parts.scheme:
            raise ValueError(f"url is {self.url!r}, but is either s3://bucket/folder or a folder's path")
        elif not os.path.isabs(os.path.expanduser(self.url)):
            raise ValueError(f"url is {self.url!r}, but must be an absolute path, or s3://bucket/folder")
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise ValueError(f"endpoint is {self.endpoint!r}, but must begin with http:// or https://")


class Remote(ABC):
    """Each method raises VersionsUnavailable if the place does not answer, VersionsRefused if it cannot work
    until someone changes something. It can be pickled."""

    place: str
    """Its path or URL, for messages."""

    def numbers(self) -> list[int]:
        """Every version that has a manifest there, ascending."""
        with self._translated():
            names = map(MANIFEST_NAME.fullmatch, self._list(MANIFESTS))
        return sorted(int(found[1]) for found in names if found)

    def manifests(self, numbers: Sequence[int]) -> dict[int, str]:
        """The texts of these versions' manifests; missing ones are left out."""
        with self._translated():
            found = self._read([f"{number:06d}.json" for number in numbers])
        return {int(name[:6]): data.decode(errors="replace") for name, data in found.items()}

    def commit(self, number: int, text: str) -> None:
        """Write a manifest, whole or not at all. VersionTaken if that number has another one."""
        try:
            with self._translated():
                self._create(f"{number:06d}.json", text.encode())
        except VersionsRefused as error:
            there = self.manifests([number]).get(number)
            if there is None:
                raise
            if there != text:  # else the answer to an earlier try was lost
                raise VersionTaken(f"{self.place} has another version {number}") from error

    def files(self) -> Mapping[str, int]:
        """The size of each complete file, by its digest."""
        with self._translated():
            return self._list(FILES)

    def put(self, digest: str, source: Path) -> None:
        with self._translated():
            self._put(digest, source)

    def get(self, digest: str, target: Path) -> None:
        """Copy a file from there. The caller checks its digest. DiskFull if it has no room here."""
        with self._translated(), room_in(target.parent):
            self._get(digest, target)

    def remove(self, digests: Collection[str]) -> None:
        """Delete files; missing ones are ignored."""
        with self._translated():
            for digest in digests:  # one by one: a bulk deletion hides which were refused
                self._delete(digest)

    def check(self) -> None:
        """Raise what writing, reading, deleting, or a second manifest of one number would raise."""
        with self._translated():
            self._check()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except VersionsUnavailable:
            raise
        except Exception as error:
            library = type(error).__module__.partition(".")[0] in ("aiobotocore", "aiohttp", "botocore")
            if not (library or isinstance(error, OSError | ValueError)):
                raise
            raise self._meaning(error) from error

    @abstractmethod
    def _meaning(self, error: Exception) -> VersionsUnavailable: ...

    @abstractmethod
    def _list(self, folder: str) -> Mapping[str, int]:
        """Names and sizes."""

    @abstractmethod
    def _read(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Those of these manifests that are there."""

    @abstractmethod
    def _create(self, name: str, data: bytes) -> None:
        """Write a manifest. Its error means VersionsRefused if there is one of this name."""

    @abstractmethod
    def _put(self, digest: str, source: Path) -> None: ...

    @abstractmethod
    def _get(self, digest: str, target: Path) -> None: ...

    @abstractmethod
    def _delete(self, digest: str) -> None: ...

    @abstractmethod
    def _check(self) -> None: ...


def remote_of(settings: VersionsSettings) -> Remote | None:
    """None without a URL. Makes no request."""
    if settings.url is None:
        return None
    if urlsplit(settings.url).scheme == S3:
        return BucketRemote(settings.url, endpoint=settings.endpoint)
    return FolderRemote(Path(settings.url).expanduser())


class FolderRemote(Remote):
    """Drafts are flushed, then renamed or linked into place.

    `root` has to exist: otherwise an empty mount point would be taken for it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.place = str(root)

    def _folder(self, name: str) -> Path:
        folder = self._root / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        draft = self._folder(DRAFTS) / uuid4().hex
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _list(self, folder: str) -> Mapping[str, int]:
        return {entry.name: entry.stat().st_size for entry in os.scandir(self._folder(folder))}

    def _read(self, names: Sequence[str]) -> Mapping[str, bytes]:
        found, folder = dict[str, bytes](), self._folder(MANIFESTS)
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = (folder / name).read_bytes()
        return found

    def _create(self, name: str, data: bytes) -> None:
        with self._draft() as draft:
            draft.write_bytes(data)
            sync(draft)
            folder = self._folder(MANIFESTS)
            os.link(draft, folder / name)
            sync(folder)

    def _put(self, digest: str, source: Path) -> None:
        with self._draft() as draft:
            shutil.copyfile(source, draft)
            sync(draft)
            folder = self._folder(FILES)
            draft.rename(folder / digest)
            sync(folder)

    def _get(self, digest: str, target: Path) -> None:
        shutil.copyfile(self._folder(FILES) / digest, target)

    def _delete(self, digest: str) -> None:
        (self._folder(FILES) / digest).unlink(missing_ok=True)

    def _check(self) -> None:
        with self._draft() as first, self._draft() as second:
            for draft in self._folder(DRAFTS).iterdir():
                if time.time() - draft.stat().st_mtime > ABANDONED_S:
                    draft.unlink(missing_ok=True)
            first.touch()
            os.link(first, second)

    def _meaning(self, error: Exception) -> VersionsUnavailable:
        number, words = getattr(error, "errno", None), getattr(error, "strerror", None)
        if not self._root.is_dir():
            return VersionsRefused(
                f"there is no folder {self.place}: mount it or make it, or correct versions.url"
            )
        if number in (ENOSPC, EDQUOT):
            return VersionsRefused(
                f"{self.place} has no room ({words}): make some, or lower learner.keep_versions"
            )
        if number in (EACCES, EEXIST, EPERM, EROFS):
            return VersionsRefused(
                f"{self.place} refuses ({words}): this user has to write there, hard links included"
            )
        return VersionsUnavailable(f"{self.place} cannot be read or written now ({error})")


class BucketRemote(Remote):
    """`url` is `s3://bucket/folder`. An object exists whole or not at all, whoever dies meanwhile."""

    def __init__(self, url: str, *, endpoint: str | None = None) -> None:
        self.place = url.rstrip("/")
        self._endpoint = endpoint
        self._root = self.place.partition("://")[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return remote_of, (VersionsSettings(url=self.place, endpoint=self._endpoint),)

    @cached_property
    def _objects(self) -> Any:
        import fsspec
        import s3fs  # noqa: F401  # names the extra if it is missing

        retries = {"mode": "standard", "max_attempts": TRIES}
        found = fsspec.filesystem(
            "s3",
            endpoint_url=self._endpoint,
            use_listings_cache=False,
            config_kwargs={"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": retries},
        )
        found.retries = TRIES
        return found

    def _list(self, folder: str) -> Mapping[str, int]:
        found = self._objects.find(f"{self._root}/{folder}", detail=True)
        return {path.rpartition("/")[2]: entry["size"] for path, entry in found.items()}

    def _read(self, names: Sequence[str]) -> Mapping[str, bytes]:
        paths = {f"{self._root}/{MANIFESTS}/{name}": name for name in names}
        answers = self._objects.cat(list(paths), on_error="return") if paths else {}
        found = dict[str, bytes]()
        for path, answer in answers.items():
            if isinstance(answer, FileNotFoundError) and answer.__cause__ is None:
                continue  # with a cause it is the server's own answer: there is no bucket
            if isinstance(answer, Exception):
                raise answer
            found[paths[path]] = answer
        return found

    def _create(self, name: str, data: bytes) -> None:
        self._objects.pipe_file(f"{self._root}/{MANIFESTS}/{name}", data, mode="create")

    def _put(self, digest: str, source: Path) -> None:
        self._objects.put_file(str(source), f"{self._root}/{FILES}/{digest}")

    def _get(self, digest: str, target: Path) -> None:
        self._objects.get_file(f"{self._root}/{FILES}/{digest}", str(target))

    def _delete(self, digest: str) -> None:
        self._objects.rm_file(f"{self._root}/{FILES}/{digest}")

    def _check(self) -> None:
        path = f"{self._root}/{DRAFTS}/{uuid4().hex}"
        self._objects.find(f"{self._root}/{DRAFTS}")
        self._objects.pipe_file(path, b"1", mode="create")
        try:
            self._objects.pipe_file(path, b"2", mode="create")
        except OSError:
            with suppress(FileNotFoundError):
                self._objects.cat_file(path)
        else:
            raise VersionsRefused(
                f"{self.place} lets one object be created twice (it ignores If-None-Match), so two "
                "machines could write one version: use a server with conditional writes"
            )
        finally:
            self._objects.rm_file(path)

    def _meaning(self, error: Exception) -> VersionsUnavailable:
        return bucket_error(self.place, self._endpoint, error)


def bucket_error(place: str, endpoint: str | None, error: Exception) -> VersionsUnavailable:
    """An error of s3fs or botocore as ours, with its remedy."""
    at = f"{place} at {endpoint}" if endpoint else place
    if (answer := _answer(error)) is None:
        short = " ".join(str(error).split())[:LONGEST_MESSAGE] or type(error).__name__
        if type(error).__name__ in NO_CREDENTIALS:
            remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            return VersionsRefused(f"there are no credentials for {at}: {remedy}")
        if isinstance(error, FileNotFoundError):
            return VersionsUnavailable(f"{at} has no {short} any more")
        if isinstance(error, ValueError):
            return VersionsRefused(f"{at} cannot be used: {short}; correct versions.url")
        return VersionsUnavailable(f"{at} does not answer: {short}")
    status, code, message = answer
    words = f"{code}: {message}" if message else code
    if code == "NoSuchBucket":
        bucket = place.partition("://")[2].partition("/")[0]
        return VersionsRefused(f"there is no bucket {bucket} for {at}: make it, or correct versions.url")
    if code in NO_ROOM or status == 507:
        return VersionsRefused(f"{at} has no room ({words}): make some, or lower learner.keep_versions")
    if code in NO_RIGHTS or status == 403:
        remedy = "the credentials have to list, read, write and delete objects there"
        return VersionsRefused(f"{at} refuses ({words}): {remedy}")
    if status >= 500 or code in BUSY:
        return VersionsUnavailable(f"{at} cannot take or give anything now ({words})")
    return VersionsRefused(f"{at} refuses ({words})")


def _answer(error: BaseException | None) -> tuple[int, str, str] | None:
    """Status, code and message of the server's answer, wherever in the chain of causes it is."""
    while error is not None:
        response: dict[str, Any] | None = getattr(error, "response", None)
        if isinstance(response, dict) and "Error" in response:
            fault = response["Error"]
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return status, str(fault.get("Code", status)), str(fault.get("Message", ""))[:LONGEST_MESSAGE]
        error = error.__cause__
    return None
