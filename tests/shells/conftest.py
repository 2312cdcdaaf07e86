"""A tiny model's folder, and a home whose store holds turns."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest
from typer import main, testing

from afterwit.lifecycle import Reason
from afterwit.store.sqlite import SqliteStore
from tests.fakes.models import tiny_qwen3
from tests.store.examples import PRAISED, a_version, add, add_judged

main.get_command = testing._get_command = cache(main.get_command)
"""Typer builds all commands at each call, which takes longer than most commands."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Four turns: open, skipped, judged and trained in version 1."""
    store = SqliteStore.open(tmp_path / "store.db", fingerprint="f")
    add(store, "aopen", now=time.time())
    add(store, "bfailed", reason=Reason.PENALTIES)
    add_judged(store, "cjudged")
    add_judged(store, "dtrained", PRAISED)
    store.commit_version(a_version(0), now=1.0)
    store.commit_version(a_version(1, ["dtrained"]), now=2.0)
    store.published(1, now=3.0)
    store.close()
    return tmp_path
