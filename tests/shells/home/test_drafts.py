"""Drafts of files and folders, and their remains after killed processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from afterwit.home.drafts import draft_beside

KILLED = """
import os, signal, sys
from pathlib import Path
from afterwit.home.drafts import draft_beside

with draft_beside(Path(sys.argv[1])) as draft:
    (draft / "said").write_text("a secret")
    print(draft.name, flush=True)
    {then}
"""


def another(place: Path, then: str) -> subprocess.Popen[str]:
    """A process that has begun a draft."""
    words = [sys.executable, "-c", KILLED.format(then=then), str(place)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_draft_takes_its_place_or_goes(tmp_path: Path) -> None:
    with draft_beside(tmp_path / "kept") as draft:
        assert draft.stat().st_mode & 0o777 == 0o700
        (draft / "a").touch()
        draft.rename(tmp_path / "kept")
    with pytest.raises(FileNotFoundError), draft_beside(tmp_path / "dropped") as draft:
        (draft / "nowhere").rename(tmp_path / "dropped")
    assert names(tmp_path) == {"kept"}


def test_what_a_killed_process_left_goes_with_the_next_draft_of_that_place(tmp_path: Path) -> None:
    place = tmp_path / "home*"
    dead = another(place, "os.kill(os.getpid(), signal.SIGKILL)")
    with dead:
        assert dead.stdout is not None
        left = dead.stdout.read().strip()
    assert dead.returncode == -signal.SIGKILL
    bystanders = {".home*", ".home*.old", ".home*.afterwit", ".homes.afterwit-x", ".home*.afterwit-file"}
    for name in bystanders - {".home*.afterwit-file"}:
        (tmp_path / name).mkdir()
    (tmp_path / ".home*.afterwit-file").touch()
    assert names(tmp_path) == bystanders | {left}
    with draft_beside(tmp_path / "other"):
        assert left in names(tmp_path)
    with draft_beside(place):
        assert left not in names(tmp_path)
    assert names(tmp_path) == bystanders


def test_a_draft_that_a_process_still_writes_stays(tmp_path: Path) -> None:
    place = tmp_path / "home"
    with another(place, "sys.stdin.read()") as alive:
        assert alive.stdout is not None
        assert alive.stdin is not None
        theirs = alive.stdout.readline().strip()
        with draft_beside(place):
            assert theirs in names(tmp_path)
        alive.stdin.close()
    assert alive.returncode == 0
    assert not names(tmp_path)
