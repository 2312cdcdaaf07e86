"""Names as a reader of the algorithm page writes them, turned into ours once, unknown ones refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from afterwit.objective.settings import ObjectiveSettings

ARRAYS = (
    "logits_current",
    "logits_old",
    "logits_teacher",
    "logits_base",
    "ids",
    "behaviour",
    "reward",
    "tau",
    "mask",
    "group",
    "basis",
    "hint_lengths",
)
SYMBOLS = {"c": "diff_clip"}
"""Symbols of the algorithm page that are not a setting's name in lower case."""


def settings_named(settings: ObjectiveSettings | Mapping[str, Any]) -> ObjectiveSettings:
    """Settings from a mapping such as `{"w_RL": 0, "K": 8, "C": 0}`; case does not matter."""
    if isinstance(settings, ObjectiveSettings):
        return settings
    known = [field.name for field in fields(ObjectiveSettings)]
    ours = {name: SYMBOLS.get(name.lower(), name.lower()) for name in settings}
    for name, our_name in ours.items():
        _refuse_unknown("setting", name, our_name, known)
    if len(set(ours.values())) < len(ours):
        raise ValueError(f"a setting is given twice among {', '.join(ours)}")
    return ObjectiveSettings(**{our_name: settings[name] for name, our_name in ours.items()})


def samples_named(arrays: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One mapping per sample, also from one of names to lists, where a number or `None` is every sample's."""
    samples = _transposed(arrays) if isinstance(arrays, Mapping) else list(arrays)
    if not samples:
        raise ValueError("there is no sample")
    for sample in samples:
        for name in sample:
            _refuse_unknown("array", name, name, ARRAYS)
        if sample.get("logits_current") is None:
            raise ValueError("a sample lacks logits_current")
    return samples


def _transposed(columns: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if columns.get("logits_current") is None:
        raise ValueError("the arrays lack logits_current")
    size = len(columns["logits_current"])
    rows: list[dict[str, Any]] = [{} for _ in range(size)]
    for name, column in columns.items():
        shared = column is None or isinstance(column, (int, float, str))
        if not shared and len(column) != size:
            raise ValueError(f"{size} samples but {len(column)} of {name}")
        for index, row in enumerate(rows):
            row[name] = column if shared else column[index]
    return list(rows)


def _refuse_unknown(what: str, given: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name in known:
        return
    nearest = get_close_matches(name, known, n=1, cutoff=0.0)
    raise ValueError(f"unknown {what} {given!r}; the nearest is {nearest[0]!r}")
