"""Who may do what over one home at one time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from afterwit.apps.build import store_of_model, versions_of
from afterwit.apps.config import Settings
from afterwit.apps.runtime import Runtime
from afterwit.apps.train import learn
from afterwit.core.errors import AlreadyRunning
from tests.journey.conftest import PlainJudge


async def test_a_stage_has_one_process_a_home(settings: Callable[..., Settings], tmp_path: Path) -> None:
    async with Runtime(settings(), tmp_path, ("judge",), judge=PlainJudge()):
        with pytest.raises(AlreadyRunning, match=f"may run the stage judge over {tmp_path}: process"):
            await Runtime(settings(), tmp_path, ("judge",), judge=PlainJudge()).__aenter__()
    async with Runtime(settings(), tmp_path, ("judge",), judge=PlainJudge()):
        pass


def test_a_second_learner_leaves_the_firsts_standing_alone(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    store = store_of_model(settings(), tmp_path, model)
    store.set_status("learn", True, "wrote version 7", now=time.time())
    with versions_of(tmp_path, model).learning():
        with pytest.raises(AlreadyRunning, match="only one learner may run"):
            learn(settings(), tmp_path, stop=lambda: False, forever=False)
    standing = store.statuses()
    store.close()
    assert [(status.stage, status.ok, status.message) for status in standing] == [
        ("learn", True, "wrote version 7")
    ]
