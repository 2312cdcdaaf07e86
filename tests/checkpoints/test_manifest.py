"""A manifest is read as if a stranger had written it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.checkpoints import manifest
from afterwit.version import Origin
from tests.checkpoints.test_versions import version

DIGEST = "ab" * 32
HOSTILE = [
    "", ".", "..", "/etc/passwd", "../x", "a/b", "a\\b", "C:x", "C:\\x", "x\0", "x\n", "manifest.json",
    ".manifest.json", "x" * 256, "é" * 128,
]  # fmt: skip


def text(**changes: object) -> str:
    return json.dumps(json.loads(manifest.dump(version(2))) | changes)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a version's file"):
        manifest.parse(text(files={name: DIGEST}), 2)
    with pytest.raises(ValueError, match="cannot be the name of a version's file"):
        manifest.dump(version(2, files={name: DIGEST}))


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "learner.index", "learner-0.shard", "vocab (1).json", "grüße.txt", "...json"],
)
def test_files_as_people_name_them_pass(name: str) -> None:
    assert manifest.parse(text(files={name: DIGEST}), 2).files == {name: DIGEST}


@given(st.text(max_size=12), st.sampled_from(["", "../", "/", "a\\", "c:"]))
def test_whatever_passes_lies_in_the_folder_itself(rest: str, start: str) -> None:
    name = start + rest
    if manifest.names_file(name):
        for kind in (Path, PureWindowsPath):
            assert (kind("folder") / name).parent == kind("folder")
            assert (kind("folder") / name).name == name


@pytest.mark.parametrize(
    "digest", ["", "ab", "AB" * 32, "ab" * 31, "../" * 21 + "x", "g" * 64, "ab" * 32 + "\n"]
)
def test_a_digest_is_hex_of_its_length(digest: str) -> None:
    with pytest.raises(ValueError, match="is not a hash of the file x"):
        manifest.parse(text(files={"x": digest}), 2)


def test_a_manifest_is_of_its_own_number() -> None:
    with pytest.raises(ValueError, match="its number is 2, not 3"):
        manifest.parse(text(), 3)


@pytest.mark.parametrize(
    "ancestors",
    [{"parent": 2}, {"parent": -1}, {"restores": 2}, {"begins": 3}, {"reverts": [5]}, {"replays": [2]}],
)
def test_a_version_comes_from_earlier_ones_alone(ancestors: dict[str, object]) -> None:
    """A version that restores itself would be followed back for ever."""
    with pytest.raises(ValueError, match="version 2 cannot come from version"):
        manifest.parse(text(origin=Origin.ROLLBACK, **ancestors), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"files": ["x"]}, {"files": {"x": 3}}, {"number": "2"}, {"number": True}, {"turns": [1]},
        {"adapter": 3}, {"turns": "abc"}, {"metrics": {"loss": "x"}}, {"origin": "miracle"},
        {"probe": {"ids": [1]}},
    ],
)  # fmt: skip
def test_each_field_is_of_its_kind(change: dict[str, object]) -> None:
    (field,) = change
    with pytest.raises(ValueError, match=field):
        manifest.parse(text(**change), 2)


def test_numbers_that_json_does_not_have_read_back() -> None:
    """A metric may be infinite, and such a version was written."""
    written = replace(version(2), metrics={"loss": float("inf")}, created=3)
    assert manifest.parse(manifest.dump(written), 2) == written
