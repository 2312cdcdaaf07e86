"""Error messages if the machine refuses something, or a person mistypes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit import demo
from afterwit.checkpoints.manifest import exclusive
from afterwit.cli.app import app, main
from afterwit.cli.options import private
from afterwit.demo.command import replace_earlier
from afterwit.errors import SettingError
from afterwit.home.home import remember_model
from afterwit.printing.terminal import Terminal
from tests.disk import room_for

MODEL = Path(demo.__file__).parent / "chat" / "model"
run = CliRunner()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that fails."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("afterwit: ")
    assert line.count("\n") == 1
    return line


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="the system has no full device")
@pytest.mark.parametrize("format", ["turns", "sft"])
def test_an_export_to_a_full_disk_is_a_line(
    home: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    line = said(capsys, "export", "/dev/full", "--format", format, "--home", str(home))
    assert f"/dev/full cannot be written: {os.strerror(errno.ENOSPC)}" in line


def test_an_export_that_finds_no_room_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    full = pytest.raises(SettingError, match=f"^{file} cannot be written: File too large")
    with room_for(1000), full, private(file) as stream:
        stream.write(b"x" * 100_000)
    assert not file.exists()


@pytest.mark.parametrize("command", ["show", "exclude", "pause"])
def test_an_argument_that_is_no_text_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert r"the argument '\udcff\udcfe' is not UTF-8" in said(
        capsys, command, os.fsdecode(b"\xff\xfe"), "--home", str(home)
    )


@pytest.mark.parametrize("command", ["turns", "export"])
@pytest.mark.parametrize("number", [2**63, 10**30, -1])
def test_a_version_that_no_store_can_hold_is_refused(home: Path, command: str, number: int) -> None:
    result = run.invoke(app, [command, "--version", str(number), "--home", str(home)])
    assert (result.exit_code, "--version" in result.stderr) == (2, True)


def test_a_picture_that_cannot_be_written_is_a_line(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    for place in (tmp_path / "nowhere" / "a.png", tmp_path):
        line = said(capsys, "progress", "--png", str(place), "--home", str(home))
        assert f"{place} cannot be written" in line


def test_a_backup_takes_no_place_but_a_files(home: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, Path("/dev/null"), tmp_path):
        result = run.invoke(app, ["backup", str(place), "--home", str(home)])
        assert "is not a file" in str(result.exception)
    assert pipe.is_fifo()
    assert Path("/dev/null").is_char_device()


def test_a_backup_follows_a_link_to_the_file_that_it_replaces(home: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "elsewhere" / "first.tar", tmp_path / "newest.tar"
    real.parent.mkdir()
    link.symlink_to(real)
    assert run.invoke(app, ["backup", str(link), "--home", str(home)]).exit_code == 0
    assert link.is_symlink()
    assert real.stat().st_size > 0


@pytest.mark.parametrize("words", [["serve", "~no-one/model"], ["init", "~no-one/model"], ["status"]])
def test_the_folder_of_an_unknown_user_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    home = str(tmp_path) if len(words) > 1 else "~no-one/home"
    assert "no user's folder is ~no-one" in said(capsys, *words, "--home", home)


@pytest.mark.parametrize("words", [["demo"], ["trial", str(MODEL)]])
def test_a_report_in_place_of_a_file_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'} is not a folder" in said(capsys, *words, "--out", str(tmp_path / "file"))


def earlier(out: Path) -> Path:
    """The home of an earlier run in `out`."""
    (out / "home").mkdir()
    (out / "store.db").rename(out / "home" / "store.db")
    return out / "home"


def test_a_demo_replaces_no_other_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = earlier(home)
    remember_model(there, home)
    assert "holds the home of something else" in said(capsys, "demo", "--out", str(home))
    assert (there / "store.db").exists()


def test_a_demo_of_a_package_that_was_moved_is_known(home: Path) -> None:
    there = earlier(home)
    remember_model(there, home / "gone" / "afterwit" / "demo" / "tools" / "model")
    replace_earlier(there, Terminal())
    assert not there.exists()


def test_a_demo_replaces_no_home_that_is_in_use(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = earlier(home)
    with exclusive(there / ".gateway.lock", purpose="a test", wait=False):
        assert f"runs over {there}" in said(capsys, "demo", "--out", str(home))
    assert (there / "store.db").exists()


def test_a_number_of_gpus_without_their_memory_is_refused(tmp_path: Path) -> None:
    result = run.invoke(app, ["plan", str(MODEL), "--gpus", "8", "--home", str(tmp_path)])
    assert result.exit_code == 1
    assert "--gpus needs --gpu-memory" in result.stderr
