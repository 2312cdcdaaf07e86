"""Self-tests of the machine and the home: disk, port, device, versions, store."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from afterwit import build
from afterwit.checkpoints.files import exclusive
from afterwit.checkpoints.remote import Remote
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.model_files import weight_files
from afterwit.errors import AlreadyRunning
from afterwit.gateway.http_server import bound_socket
from afterwit.home.home import STORE, make_home, store_url
from afterwit.store.open import store_exists

BYTES_PER_WEIGHT = 4 + 8
"""A version has each weight that trains in fp32, and AdamW's two moments."""


def check_machine(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """Every test of the machine itself."""
    yield tested("home", lambda: _writable(home), remedy="choose another folder with --home or AFTERWIT_HOME")
    yield tested(
        "disk",
        lambda: _room(settings, home, folder),
        remedy="free some space, or lower learner.keep_versions",
    )
    yield tested("port", lambda: _port(settings, home), remedy="stop what listens there, or choose another")
    yield tested(
        "device", lambda: _device(settings), remedy="set engine.device and learner.device to auto or cpu"
    )
    engine = settings.engine
    if isinstance(engine, EmbeddedSettings):
        yield tested(
            "engine memory",
            lambda: _prefix_cache(engine, folder),
            remedy="set engine.prefix_cache_gib, in GiB",
        )


def _writable(home: Path) -> str:
    make_home(home)
    with tempfile.NamedTemporaryFile(dir=home):
        pass
    others = home.stat().st_mode & 0o077
    expect(not others, f"{home} can be read by others: chmod 700 {home}")
    return str(home)


def _room(settings: Settings, home: Path, folder: Path) -> str:
    versions, rank = settings.learner.keep_versions + 1, settings.learner.lora_rank
    needed = versions * _trained(folder, rank) * BYTES_PER_WEIGHT
    free = shutil.disk_usage(home).free
    seen = f"{free / 2**30:.1f} GiB free; {versions} versions may take {needed / 2**30:.1f} GiB"
    expect(free > needed, seen)
    return seen


def _trained(folder: Path, rank: int) -> int:
    """The most weights that may train, by the shapes on disk: all, or an adapter's on every matrix."""
    from safetensors import safe_open

    paths, shapes = weight_files(folder), list[list[int]]()
    if paths[0].suffix != ".safetensors":  # PyTorch's own files do not list shapes
        return sum(path.stat().st_size for path in paths) // 2
    for path in paths:
        with safe_open(path, framework="pt") as file:
            shapes += [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 - no mapping
    if rank == 0:
        return sum(map(math.prod, shapes))
    return sum(rank * sum(shape) for shape in shapes if len(shape) == 2)


def _port(settings: Settings, home: Path) -> str:
    try:
        with exclusive(home / ".gateway.lock", purpose="doctor", wait=False):
            sock = bound_socket(settings.serve.host, settings.serve.port)
            address = ":".join(map(str, sock.getsockname()[:2]))
            sock.close()
            return f"{address} is free"
    except AlreadyRunning:
        return "a gateway runs over this home and has its port"


def _device(settings: Settings) -> str:
    from afterwit.engines.embedded.load import device_and_dtype
    from afterwit.learning.models import device_of

    learner = f"the learner on {device_of(settings.learner.device)} in {settings.learner.dtype}"
    if not isinstance(settings.engine, EmbeddedSettings):
        return f"the engine is the server at {' and '.join(settings.engine.urls)}, {learner}"
    device, dtype = device_and_dtype(settings.engine)
    return f"the engine runs on {device} in {dtype}, {learner}"


def _prefix_cache(engine: EmbeddedSettings, folder: Path) -> str:
    from afterwit.engines.embedded.cache import budget_of, in_words
    from afterwit.engines.embedded.load import context_of, device_and_dtype
    from afterwit.model_shape import kept_per_token
    from afterwit.weights.load import read_config

    device, dtype = device_and_dtype(engine)
    config = read_config(folder).get_text_config().to_dict()
    token = kept_per_token(config) * dtype.itemsize
    return in_words(budget_of(engine, device), token, context_of(config, engine.context_length))


def check_versions(versions: Versions) -> Iterator[Finding]:
    """The place where machines share versions, and the files of every version whose weights are on this
    disk."""
    if versions.remote is not None:
        yield tested(
            "versions.url",
            partial(_shared, versions, versions.remote),
            remedy="nothing is learned until this is done",
        )
    for number in filter(versions.on_disk, versions.numbers()):
        yield tested(
            f"version {number}",
            partial(_verified, versions, number),
            remedy="the version is not served, and the learner waits until this is done",
        )


def _shared(versions: Versions, remote: Remote) -> str:
    remote.check()
    versions.follow()
    return f"{remote.place} takes, gives and deletes; version {versions.newest()} is the newest"


def _verified(versions: Versions, number: int) -> str:
    versions.verify(number)
    return "its files are as the learner wrote them"


def check_store(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """The store, and the stages' last reports."""
    url = store_url(home, settings.store.url)
    if not store_exists(url):
        place = "at store.url" if settings.store.url else home / STORE
        yield Finding(name="store", ok=True, seen=f"none yet; it will be {place}")
    else:
        yield tested(
            "store",
            lambda: _opens(settings, home, folder),
            remedy="choose another --home, or the model it belongs to",
        )
        yield from _stages(home)


def _opens(settings: Settings, home: Path, folder: Path) -> str:
    with closing(build.store_of_model(settings, home, folder)) as store:
        states = ", ".join(f"{state.value} {count}" for state, count in store.counts().states.items())
        return f"{store.size() / 2**20:.1f} MiB; {states or 'no turns yet'}"


def _stages(home: Path) -> Iterator[Finding]:
    with build.store_of_home(home) as store:
        for status in store.statuses():
            yield Finding(
                name=f"stage {status.name}",
                ok=status.ok,
                seen=status.message,
                remedy="" if status.ok else "it tries again by itself; its last message says what it needs",
            )
