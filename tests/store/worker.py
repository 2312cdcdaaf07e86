"""The work of the processes that the tests start and kill."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from afterwit.errors import StoreError
from afterwit.lifecycle import State
from afterwit.store.sqlite import SqliteStore
from afterwit.version import Origin, Version
from tests.processes import PROCESSES
from tests.store.examples import HINTED, NO, a_version, add
from tests.store.places import Place


def run(work: Callable[..., None], *arguments: Any) -> int | None:
    """Run it in a new process; its exit code, or minus the signal that killed it."""
    process = PROCESSES.Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def note(file: Path, line: str) -> None:
    """Append a line that survives the process. What is noted was acknowledged."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def noted(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def manifests(folder: Path) -> list[Version]:
    """The checkpoint folder's, oldest first; number 0 is the base."""
    read = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return [
        a_version(0, parent=None, origin=Origin.BASE),
        *(a_version(data["number"], data["turns"]) for data in read),
    ]


def rename_into_place(folder: Path, version: Version) -> None:
    draft = folder / "draft"
    draft.write_text(json.dumps({"number": version.number, "turns": version.turns}))
    draft.rename(folder / f"{version.number:06d}.json")


def whole_loop(place: Place, folder: Path, turns: int, die_at: int | None) -> None:
    """From arrival to training, going on where an earlier process was killed: at its statement `die_at`."""
    statements = 0

    def count() -> None:
        nonlocal statements
        statements += 1
        if statements == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = place.watched(count)
    note(folder / "starts", "")
    now = 1000.0 * len(noted(folder / "starts"))  # past the leases that an earlier process left
    store.reconcile(manifests(folder), now=now)
    known = {record.turn.id: record.state for record in store.turns()}
    for name in (f"t{number}" for number in range(turns)):
        if name not in known:
            add(store, name)
            note(folder / "acknowledged", name)
        if known.get(name, State.OPEN) is State.OPEN:
            store.answer(name, NO, answered_by=None, now=now)
    while claimed := store.claim("judge", owner="judge", limit=2, lease_s=60, now=now):
        for record in claimed:
            store.judged(record.turn.id, HINTED, rl=True, opd=True, reason=None, owner="judge", now=now)
    while claimed := store.claim("learn", owner="learner", limit=2, lease_s=60, now=now):
        held = store.extend([r.turn.id for r in claimed], owner="learner", lease_s=60, now=now)
        version = a_version(manifests(folder)[-1].number + 1, held)
        rename_into_place(folder, version)
        store.commit_version(version, now=now)
    store.close()
    note(folder / "statements", str(statements))


def write_until_killed(place: Place, folder: Path, tag: str) -> None:
    store = place.open()
    number = 0
    while True:
        add(store, f"{tag}n{number}")
        note(folder / "acknowledged", f"{tag}n{number}")
        number += 1


def claim_until_empty(place: Place, folder: Path, owner: str) -> None:
    store = place.open()
    while claimed := store.claim("judge", owner=owner, limit=3, lease_s=1e6, now=0.0):
        for record in claimed:
            note(folder / owner, record.turn.id)
    store.close()


def limit_files(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size < 0 else size, hard))


def fill_the_disk(path: Path, folder: Path) -> None:
    """Writes until files may not grow, then gets room and writes on."""
    store = SqliteStore.open(path, fingerprint="model")

    def write(number: int) -> None:
        add(store, f"t{number}")
        note(folder / "acknowledged", f"t{number}")

    limit_files(path.stat().st_size + 200_000)
    try:
        for number in range(10_000):
            write(number)
    except StoreError as error:
        note(folder / "error", str(error))
    limit_files(-1)
    write(10_000)
    store.close()


def open_on_a_full_disk(path: Path, folder: Path) -> None:
    limit_files(1000)
    try:
        SqliteStore.open(path, fingerprint="model")
    except StoreError as error:
        limit_files(-1)
        note(folder / "error", str(error))
