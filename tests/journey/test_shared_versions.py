"""A machine with an empty disk serves the versions that another one learned, over a real S3 server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from afterwit.build import versions_of
from afterwit.checkpoints.versions import roll_back
from afterwit.config import Settings
from afterwit.errors import VersionsRefused
from afterwit.running.serve import Runtime
from tests.checkpoints.places import bucket
from tests.journey.conftest import client, until
from tests.journey.test_turn import ASKED, whole_loop

pytestmark = pytest.mark.cluster


async def says(runtime: Runtime) -> str | None:
    """The version that answers."""
    assert runtime.url is not None
    answer = await client(runtime.url).chat.completions.create(
        model="afterwit", messages=[ASKED], max_tokens=4
    )
    return answer.system_fingerprint


@pytest.mark.slow  # two whole servers; what they share is tested by itself
async def test_a_machine_with_an_empty_disk_serves_what_another_learned(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    from tests.fakes.s3 import s3

    shared = settings({"versions": asdict(bucket(tmp_path))})
    first, other = tmp_path / "first", tmp_path / "other"
    await whole_loop(shared, model, first, weights="adapter_model.safetensors")
    async with Runtime(shared, other, ("gateway",)) as machine:
        assert await says(machine) == "v1"
        roll_back(versions_of(first, model, shared.versions), 0, now=time.time())

        async def taken_back() -> bool | None:
            return await says(machine) == "v2" or None

        await until(taken_back)
    with s3().away():
        async with Runtime(shared, first, ("gateway",)) as machine:
            assert await says(machine) == "v2"

            async def said() -> str | None:
                statuses = await machine.store.call(lambda store: store.statuses())
                return next((one.message for one in statuses if one.stage == "publish" and not one.ok), None)

            assert "does not answer: Could not connect" in await until(said)


async def test_a_bucket_that_is_not_there_stops_the_start(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    place = asdict(bucket(tmp_path)) | {"url": "s3://no-such-bucket/versions"}
    with pytest.raises(VersionsRefused, match=r"there is no bucket no-such-bucket .*: make it, or correct"):
        async with Runtime(settings({"versions": place}), tmp_path, ("gateway",)):
            pass
