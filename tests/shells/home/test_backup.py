"""Backup and restore of a home."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home, versions_of
from afterwit.checkpoints.manifest import exclusive
from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.cli.app import app
from afterwit.config import section_of_home
from afterwit.errors import AlreadyRunning, SettingError
from afterwit.home import backup as backups
from afterwit.home.backup import HEADER, restore_home
from afterwit.store.sqlite import SqliteStore
from tests.store.examples import a_version, add, add_judged

run = CliRunner()


def write_version(home: Path, number: int, turns: tuple[str, ...] = ()) -> None:
    versions = Versions(root=home / "versions", base=home)

    def fill(folder: Path) -> None:
        if number:
            (folder / "adapter_model.safetensors").write_bytes(b"weights %d" % number * 1000)
            (folder / "adapter_config.json").write_text("{}")

    versions.write(a_version(number, list(turns)), fill)


@pytest.fixture
def learned(home: Path, tmp_path: Path) -> Path:
    """The home, with the folders of its versions 0 and 1, and a config.toml."""
    moved = home / "home"
    moved.mkdir(mode=0o700)
    for path in list(home.iterdir()):
        if path != moved:
            path.rename(moved / path.name)
    write_version(moved, 0)
    write_version(moved, 1, ("dtrained",))
    (moved / "config.toml").write_text("[judge]\nvotes = 5\n")
    (moved / "model.json").write_text(json.dumps({"folder": "/nowhere/model"}))
    return moved


def contents(home: Path) -> dict[str, bytes]:
    """A home's files apart from its store."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and path.name[0] != "." and not path.name.startswith("store.db")
    }


def turns(home: Path) -> list[tuple[str, str]]:
    with store_of_home(home) as store:
        return [(record.turn.id, record.state) for record in store.turns()]


def test_a_restored_home_holds_what_the_home_held(learned: Path, tmp_path: Path) -> None:
    file, again = tmp_path / "copy.tar", tmp_path / "new" / "again"
    (learned / "unrecorded-turns.jsonl").write_text("{}\n")
    said = run.invoke(app, ["backup", str(file), "--home", str(learned)], catch_exceptions=False).stdout
    assert "2 versions, 1 with weights" in " ".join(said.split())
    assert file.stat().st_mode & 0o777 == 0o600
    said = run.invoke(
        app, ["restore", str(file), "--yes", "--home", str(again)], catch_exceptions=False
    ).stdout
    assert "its model was /nowhere/model, which is not here" in " ".join(said.split())
    assert contents(again) == contents(learned)
    assert turns(again) == turns(learned)
    assert again.stat().st_mode & 0o777 == 0o700
    assert (again / "store.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.tar", "home", "new"]


def test_settings_of_a_backup_are_shown_and_not_used_before_somebody_says_so(
    learned: Path, tmp_path: Path
) -> None:
    """Another person's backup may name a program to start, or a judge that gets every conversation."""
    words = '[engine]\nkind = "vllm"\ncommand = ["/tmp/theirs"]\n'
    (learned / "config.toml").write_text(words)
    file, again = tmp_path / "copy.tar", tmp_path / "again"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)
    said = run.invoke(app, ["restore", str(file), "--home", str(again)], catch_exceptions=False).stdout
    assert "/tmp/theirs" in said
    assert not (again / "config.toml").exists()
    assert (again / "config.toml.restored").read_text() == words


def test_two_links_to_one_file_are_in_the_backup_once(learned: Path, tmp_path: Path) -> None:
    write_version(learned, 2, ("cjudged",))
    roll_back(Versions(root=learned / "versions", base=learned), 1, now=9.0)
    file = tmp_path / "copy.tar"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)
    with tarfile.open(file) as tar:
        assert sum(entry.islnk() for entry in tar) == 2
    restore_home(file, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(learned)


def test_a_version_that_is_pruned_meanwhile_keeps_its_manifest(learned: Path, tmp_path: Path) -> None:
    """Its first file is gone when it is opened, the others are there."""
    write_version(learned, 2, ("cjudged",))
    (learned / "versions" / "000001" / "adapter_config.json").unlink()
    with store_of_home(learned) as store:
        whole = backups.back_up(learned, store, tmp_path / "copy.tar", now=1.0)
    assert (len(whole), sum(whole)) == (3, 1)
    restore_home(tmp_path / "copy.tar", tmp_path / "again")
    restored = Versions(root=tmp_path / "again" / "versions", base=learned)
    assert restored.numbers() == [0, 1, 2]
    assert [restored.has_weights(number) for number in (1, 2)] == [False, True]


def test_a_version_that_the_copied_store_does_not_know_is_committed_at_the_next_start(
    learned: Path, tmp_path: Path
) -> None:
    """The store is copied first: what becomes a version afterwards is known by its manifest."""
    with store_of_home(learned) as store:
        copy_to = store.copy_to

        def then_trained(path: Path) -> None:
            copy_to(path)
            write_version(learned, 2, ("cjudged",))

        store.copy_to = then_trained  # type: ignore[method-assign]
        backups.back_up(learned, store, tmp_path / "copy.tar", now=1.0)
    again = tmp_path / "again"
    restore_home(tmp_path / "copy.tar", again)
    assert ("cjudged", "JUDGED") in turns(again)
    with store_of_home(again) as store:
        before = [row.number for row in store.versions()]
        store.reconcile(Versions(root=again / "versions", base=again).all(), now=1.0)
        assert [row.number for row in store.versions()] == [*before, 2]
    assert ("cjudged", "TRAINED") in turns(again)


def _write_turns(path: Path, ready: threading.Event, count: int) -> None:
    store = SqliteStore.open(path, fingerprint="f")
    for number in range(count):
        with store.transaction():
            add(store, f"first{number}")
            add_judged(store, f"second{number}")
        if number == 5:
            ready.set()
    store.close()


def test_while_others_write_every_transaction_is_in_the_copy_whole_or_not(
    learned: Path, tmp_path: Path
) -> None:
    ready = threading.Event()
    writer = threading.Thread(target=_write_turns, args=(learned / "store.db", ready, 60))
    writer.start()
    assert ready.wait(60)
    with store_of_home(learned) as store:
        for number in range(3):
            backups.back_up(learned, store, tmp_path / f"copy{number}.tar", now=1.0)
    writer.join()
    assert len(turns(learned)) == 124
    for number in range(3):
        restore_home(tmp_path / f"copy{number}.tar", tmp_path / f"again{number}")
        names = {name for name, _ in turns(tmp_path / f"again{number}")}
        firsts = {name.removeprefix("first") for name in names if name.startswith("first")}
        assert firsts == {name.removeprefix("second") for name in names if name.startswith("second")}
        assert len(firsts) >= 6


def test_a_backup_that_fails_leaves_the_older_one(learned: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.tar"
    file.write_bytes(b"older")
    with store_of_home(learned) as store:
        store.copy_to = lambda path: path.mkdir()  # type: ignore[method-assign]
        with pytest.raises(SettingError, match="cannot be written"):
            backups.back_up(learned, store, tmp_path / "nowhere" / "copy.tar", now=1.0)
        store.copy_to = _no_room  # type: ignore[method-assign]
        with pytest.raises(SettingError, match="cannot be written: No space left"):
            backups.back_up(learned, store, file, now=1.0)
    assert file.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.tar", "home"]


def _no_room(path: Path) -> None:
    raise OSError(28, "No space left on device")


def test_a_running_home_is_never_replaced(learned: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.tar"
    run.invoke(app, ["backup", str(file), "--home", str(learned)], catch_exceptions=False)
    for lock in (learned / ".gateway.lock", learned / "versions" / ".learner.lock"):
        with exclusive(lock, purpose="x", wait=False):
            with pytest.raises(AlreadyRunning, match="a running home is not replaced"):
                restore_home(file, learned)
    with pytest.raises(SettingError, match="is not empty: move it away first"):
        restore_home(file, learned)
    assert len(turns(learned)) == 4


def altered(file: Path, out: Path, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> Path:
    """A copy of the archive whose entries went through `change`; None leaves one out."""
    with tarfile.open(file) as old, tarfile.open(out, "w") as new:
        for entry in old:
            source = old.extractfile(entry)
            assert source is not None
            if (changed := change(entry.name, source.read())) is not None:
                info = tarfile.TarInfo(changed[0])
                info.size = len(changed[1])
                new.addfile(info, io.BytesIO(changed[1]))
    return out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda name, data: (name, data[:-1] + b"!") if name == "store.db" else (name, data), "is damaged: "),
        (
            lambda name, data: (name, b"x") if name.endswith(".safetensors") else (name, data),
            "is damaged: .*its hash is not the one in the manifest",
        ),
        (lambda name, data: None if name == "config.toml" else (name, data), "config.toml cannot be read"),
        (lambda name, data: None if name == HEADER else (name, data), f"it does not begin with {HEADER}"),
        (
            lambda name, data: ("../evil", data) if name == "config.toml" else (name, data),
            "../evil has no place",
        ),
        (
            lambda name, data: ("versions/000001/..", data) if name == "config.toml" else (name, data),
            "no place",
        ),
        (
            lambda name, data: (name, data.replace(b'"format": 1', b'"format": 2')),
            "has format 2; this Afterwit supports 1",
        ),
        (
            lambda name, data: (name, b"[]") if name == HEADER else (name, data),
            f"backup's {HEADER} cannot be read",
        ),
    ],
)
def test_a_damaged_or_foreign_archive_makes_no_home(
    learned: Path, tmp_path: Path, change: Callable[[str, bytes], tuple[str, bytes] | None], said: str
) -> None:
    file = tmp_path / "copy.tar"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)
    bad = altered(file, tmp_path / "bad.tar", change)
    with pytest.raises(SettingError, match=said):
        restore_home(bad, tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar", "copy.tar", "home"]


def entry(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (
            entry("versions/000001/x", type=tarfile.LNKTYPE, linkname="nowhere"),
            "x is neither a file nor a link",
        ),
        (
            entry("versions/000001/x", type=tarfile.LNKTYPE, linkname="store.db"),
            "x is neither a file nor a link",
        ),
        (
            entry("versions/000001/x", type=tarfile.LNKTYPE, linkname="../../../../etc/passwd"),
            "x is neither a file nor a link",
        ),
        (entry("versions/000001/x", type=tarfile.SYMTYPE, linkname="x"), "x is neither a file nor a link"),
        (entry("versions/000001/x", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "x is neither a file nor"),
        (entry("versions/000001/x", type=tarfile.FIFOTYPE), "x is neither a file nor a link"),
        (
            entry("versions/000001/x", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": "9000"}),
            "neither",
        ),
        (entry("versions/000001", type=tarfile.DIRTYPE), "has no place in a home"),
        (entry("versions/\u0661\u0661\u0661\u0661\u0661\u0661/x"), "has no place in a home"),
        (entry("versions/000001/code.py", b"import os"), "code.py has no hash in it"),
        (entry("versions/000000/code.py", b"import os"), "code.py has no hash in it"),
        (entry("versions/000007/x", b"x"), "version 7 has no manifest.json"),
    ],
)
def test_a_backup_by_somebody_else_makes_no_home(
    learned: Path, tmp_path: Path, added: tuple[tarfile.TarInfo, bytes], said: str
) -> None:
    file = tmp_path / "copy.tar"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)
    with tarfile.open(file, "a", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(added[0], io.BytesIO(added[1]))
    with pytest.raises(SettingError, match=said):
        restore_home(file, tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.tar", "home"]


def test_an_archive_that_is_larger_inside_is_not_unpacked(learned: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.tar"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(SettingError, match="not a backup of Afterwit, or damaged"):
        restore_home(file, tmp_path / "again")


@pytest.mark.parametrize("name", ["../../../etc/hostname", "/etc/hostname", "versions/000001/manifest.json"])
def test_the_header_names_files_of_a_home_alone(learned: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "copy.tar"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)

    def change(entry: str, data: bytes) -> tuple[str, bytes]:
        return entry, data.replace(b"config.toml", name.encode()) if entry == HEADER else data

    bad = altered(file, tmp_path / "bad.tar", change)
    with pytest.raises(SettingError, match="which is not a file of a home"):
        restore_home(bad, tmp_path / "again")


def test_a_truncated_archive_and_a_file_of_another_kind_are_refused(learned: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.tar"
    with store_of_home(learned) as store:
        backups.back_up(learned, store, file, now=1.0)
    whole = file.read_bytes()
    for wrong in (whole[: len(whole) // 2], b"not a tar file" * 100, b""):
        file.write_bytes(wrong)
        with pytest.raises(SettingError, match=r"not a backup of Afterwit, or damaged|is damaged"):
            restore_home(file, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_weights_that_are_at_a_shared_place_alone_are_in_the_backup(learned: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    with (learned / "config.toml").open("a") as config:
        config.write(f"[versions]\nurl = '{tmp_path / 'shared'}'\n")
    write_version(learned, 2, ("cjudged",))
    before = contents(learned)
    versions = versions_of(learned, learned, section_of_home(learned, "versions").versions)
    assert versions.remote is not None
    versions.share()
    versions.trim(1)
    assert not versions.on_disk(1)
    file, again = tmp_path / "copy.tar", tmp_path / "again"
    said = run.invoke(app, ["backup", str(file), "--home", str(learned)], catch_exceptions=False).stdout
    assert "3 versions, 2 with weights" in " ".join(said.split())
    assert not versions.on_disk(1)
    restore_home(file, again)
    assert contents(again) == before
    said = run.invoke(app, ["du", "--json", "--home", str(learned)], catch_exceptions=False).stdout
    (there,) = (row for row in map(json.loads, said.splitlines()) if row["name"] == "versions.url")
    assert there["bytes"] == sum(versions.remote.files().values())
    (tmp_path / "shared").rename(tmp_path / "away")
    refused = run.invoke(app, ["backup", str(file), "--home", str(learned)])
    assert "there is no folder" in str(refused.exception)
