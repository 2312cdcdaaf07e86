"""Self-tests of the machine and the home: disk, port, device, versions, store."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from afterwit import build, plugins
from afterwit.checkpoints.manifest import exclusive
from afterwit.checkpoints.remote import Remote
from afterwit.checkpoints.versions import Versions
from afterwit.config import SECTIONS, Settings
from afterwit.dialects.table import ADDED
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import KINDS
from afterwit.engines.model_files import shapes_of, weight_files
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import AlreadyRunning
from afterwit.gateway.http_server import bound_socket
from afterwit.home.home import STORE, make_home, stage_lock, store_url
from afterwit.objective.settings import HINT_RULES, OBJECTIVES
from afterwit.store import STORES, store_exists
from afterwit.text import size_in_words

BYTES_PER_WEIGHT = 4 + 8
"""A version has each weight that trains in fp32, and AdamW's two moments."""


def check_machine(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """Every test of the machine itself."""
    space = "free some space, or lower learner.keep_versions"
    private = f"chmod 700 {home}, or choose another folder with --home or AFTERWIT_HOME"
    yield tested("home", _writable, home, remedy=private)
    yield tested("disk", _room, settings, home, folder, remedy=space)
    yield tested("port", _port, settings, home, remedy="stop what listens there, or choose another")
    yield tested("device", _device, settings, remedy="set engine.device and learner.device to auto or cpu")
    if isinstance(settings.engine, EmbeddedSettings):
        memory = "set engine.prefix_cache_gib, in GiB"
        yield tested("engine memory", _prefix_cache, settings.engine, folder, remedy=memory)


def _writable(home: Path) -> str:
    make_home(home)
    with tempfile.NamedTemporaryFile(dir=home):
        pass
    others = home.stat().st_mode & 0o077
    expect(not others, f"{home} can be read by others")
    return str(home)


def _room(settings: Settings, home: Path, folder: Path) -> str:
    """Compares with the most weights that may train, by the shapes on disk: all, or an adapter's on every
    matrix."""
    versions, rank = settings.learner.keep_versions + 1, settings.learner.lora_rank
    if weight_files(folder)[0].suffix != ".safetensors":  # PyTorch's own files do not list shapes
        trained = sum(path.stat().st_size for path in weight_files(folder)) // 2
    elif rank == 0:
        trained = sum(map(math.prod, shapes_of(folder).values()))
    else:
        trained = sum(rank * sum(shape) for shape in shapes_of(folder).values() if len(shape) == 2)
    needed, free = versions * trained * BYTES_PER_WEIGHT, shutil.disk_usage(home).free
    seen = f"{size_in_words(free)} free; {versions} versions may take {size_in_words(needed)}"
    expect(free > needed, seen)
    return seen


def _port(settings: Settings, home: Path) -> str:
    try:
        with exclusive(stage_lock(home, "gateway"), purpose="doctor", wait=False):
            sock = bound_socket(settings.serve.host, settings.serve.port)
            address = ":".join(map(str, sock.getsockname()[:2]))
            sock.close()
            return f"{address} is free"
    except AlreadyRunning:
        return "a gateway runs over this home and has its port"


def _device(settings: Settings) -> str:
    from afterwit.engines.embedded.fitness import device_and_dtype
    from afterwit.learning.models import device_of

    learner = f"the learner on {device_of(settings.learner.device)} in {settings.learner.dtype}"
    if isinstance(settings.engine, ServerSettings):
        return f"the engine is the server at {' and '.join(settings.engine.urls)}, {learner}"
    if not isinstance(settings.engine, EmbeddedSettings):
        return f"the engine {settings.engine.kind} chooses its own, {learner}"
    device, dtype = device_and_dtype(settings.engine)
    return f"the engine runs on {device} in {dtype}, {learner}"


def _prefix_cache(engine: EmbeddedSettings, folder: Path) -> str:
    from afterwit.engines.embedded.cache import budget_of, in_words
    from afterwit.engines.embedded.fitness import context_of, device_and_dtype
    from afterwit.planning.memory import kept_per_token
    from afterwit.weights.weights import read_config

    device, dtype = device_and_dtype(engine)
    config = read_config(folder).get_text_config().to_dict()
    token = kept_per_token(config) * dtype.itemsize
    return in_words(budget_of(engine, device), token, context_of(config, engine.context_length))


def check_packages() -> Iterator[Finding]:
    """Every part that an installed package adds. A command that cannot be used is printed by each run."""
    from afterwit.objective.terms import TERMS  # these import torch
    from afterwit.running.train import BATCHES

    def added(table: plugins.Table[Any], name: str) -> str:
        table.loaded(name)
        return f"added by {plugins.package(plugins.installed(table.group)[name][0])}"

    named = (HINT_RULES, OBJECTIVES, TERMS, KINDS, STORES, build.JUDGES, BATCHES)
    for table in (*named, SECTIONS, ADDED):
        for name in plugins.installed(table.group):
            yield tested(f"{name} ({table.group})", added, table, name, remedy="")


def check_versions(versions: Versions) -> Iterator[Finding]:
    """The place where machines share versions, and the files of every version whose weights are on this
    disk."""

    def shared(remote: Remote) -> str:
        remote.check()
        versions.follow()
        return (
            f"{remote.place} can be written, read and deleted from; version {versions.newest()} is the newest"
        )

    def whole(number: int) -> str:
        versions.verify(number)
        return "its files are as the learner wrote them"

    if versions.remote is not None:
        remedy = "nothing is learned until this is done"
        yield tested("versions.url", shared, versions.remote, remedy=remedy)
    remedy = "the version is not served, and the learner waits until this is done"
    for number in filter(versions.on_disk, versions.numbers()):
        yield tested(f"version {number}", whole, number, remedy=remedy)


def check_store(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """The store, and the stages' last reports."""

    def opened() -> str:
        with closing(build.store_of_model(settings, home, folder, bind=False)) as store:
            states = ", ".join(f"{state.value} {count}" for state, count in store.counts().states.items())
            return f"{size_in_words(store.size())}; {states or 'no turns yet'}"

    if not store_exists(store_url(home, settings.store.url)):
        place = "at store.url" if settings.store.url else home / STORE
        yield Finding(name="store", ok=True, seen=f"none yet; it will be {place}")
        return
    yield tested("store", opened, remedy="choose another --home, or the model it belongs to")
    with build.store_of_home(home) as store:
        again = "it retries by itself; its last message names the cause"
        for status in store.statuses():
            remedy = "" if status.ok else again
            yield Finding(name=f"stage {status.name}", ok=status.ok, seen=status.message, remedy=remedy)
