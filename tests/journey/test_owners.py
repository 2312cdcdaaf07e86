"""Processes that may share one home at the same time, and those that may not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from afterwit.build import store_of_model, versions_of
from afterwit.config import Settings
from afterwit.errors import AlreadyRunning
from afterwit.running.serve import Runtime
from afterwit.running.train import learn
from tests.journey.conftest import PlainJudge


async def test_a_stage_has_one_process_a_home(settings: Callable[..., Settings], tmp_path: Path) -> None:
    async with Runtime(settings(), tmp_path, ("judge",), judge=PlainJudge()):
        with pytest.raises(AlreadyRunning, match=f"may run the stage judge over {tmp_path}: process"):
            await Runtime(settings(), tmp_path, ("judge",), judge=PlainJudge()).__aenter__()
    async with Runtime(settings(), tmp_path, ("judge",), judge=PlainJudge()):
        pass


def test_a_second_learner_is_refused_and_leaves_the_status_of_the_first_alone(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    store = store_of_model(settings(), tmp_path, model)
    store.set_status("learn", True, "wrote version 7", now=time.time())
    with versions_of(tmp_path, model).learning():
        with pytest.raises(AlreadyRunning, match="only one learner may run"):
            learn(settings(), tmp_path, stop=lambda: False, forever=False, wait=False)
    health = store.statuses()
    store.close()
    assert [(status.stage, status.ok, status.message) for status in health] == [
        ("learn", True, "wrote version 7")
    ]


def test_the_learner_of_a_server_waits_for_the_lock_and_says_who_holds_it(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    asked = count()
    with versions_of(tmp_path, model).learning():
        learn(settings(), tmp_path, stop=lambda: next(asked) > 0, forever=True, wait=True)
    store = store_of_model(settings(), tmp_path, model)
    (status,) = store.statuses()
    store.close()
    assert not status.ok
    assert status.message.startswith(
        f"waiting for another learner to end: only one learner may run: process {os.getpid()} holds"
    )
