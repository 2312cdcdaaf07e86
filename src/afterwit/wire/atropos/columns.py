"""The columns of a group's JSON: one entry for each sequence, each as long as its tokens. BadGroup if not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from afterwit.wire.fields import as_list

LARGEST = sys.float_info.max


class Refusal(StrEnum):
    """Why a group is refused. The value is what metrics count."""

    MALFORMED = "malformed"
    """A field is missing or has another type."""
    LENGTHS = "lengths"
    """Fields of one sequence have different lengths, or fields of one group."""
    NOT_FINITE = "not_finite"
    UNKNOWN_ID = "unknown_id"
    """An id that the vocabulary does not have."""
    MASK = "mask"
    """A mask holds what is neither -100 nor the token."""
    LOGPROBS = "logprobs"
    """A sampled token without its log-prob, or what is none."""
    ROWS = "rows"
    """Teacher rows that are none: zero-filled, unsorted, or not of the sampled id."""
    NOTES = "notes"
    """What Afterwit notes beside a group, changed on its way."""


class BadGroup(ValueError):
    """A group that cannot be trained on."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


def numbers_column(data: Mapping[str, Any], name: str, tokens: list[list[int]]) -> list[list[float]] | None:
    """One number for each token, for each sequence."""
    found = optional(data, name, len(tokens))
    if found is None:
        return None
    return [
        numbers_of(positions(row, f"{name}[{at}]", tokens[at]), f"{name}[{at}]")
        for at, row in enumerate(found)
    ]


def positions(value: Any, name: str, tokens: list[int]) -> list[Any]:
    values = as_list(value, name)
    if len(values) != len(tokens):
        raise BadGroup(Refusal.LENGTHS, f"{len(tokens)} tokens but {len(values)} in {name}")
    return values


def required(data: Mapping[str, Any], name: str) -> list[Any]:
    return as_list(data.get(name), name)


def column(data: Mapping[str, Any], name: str, size: int) -> list[Any]:
    values = required(data, name)
    if len(values) != size:
        raise BadGroup(Refusal.LENGTHS, f"{size} sequences but {len(values)} {name}")
    return values


def optional(data: Mapping[str, Any], name: str, size: int) -> list[Any] | None:
    """A column that may be absent; the public server turns an absent one into an empty list, or null."""
    if not data.get(name):
        return None
    return column(data, name, size)


def ids_of(value: Any, name: str, vocabulary: int) -> list[int]:
    values = as_list(value, name)
    for each in values:
        if type(each) is not int:
            raise BadGroup(Refusal.MALFORMED, f"{name} holds {each!r}, which is no id")
        if not 0 <= each < vocabulary:
            raise BadGroup(Refusal.UNKNOWN_ID, f"{name} holds id {each}, but the vocabulary has {vocabulary}")
    return values


def numbers_of(values: Any, name: str) -> list[float]:
    found = as_list(values, name)
    for each in found:
        if type(each) not in (int, float):
            raise BadGroup(Refusal.MALFORMED, f"{name} holds {each!r}, which is no number")
        if not -LARGEST < each < LARGEST:
            raise BadGroup(Refusal.NOT_FINITE, f"{name} holds what is no finite number")
    return list(map(float, found))
