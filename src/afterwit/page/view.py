"""What a view is, and how it reads an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.store import Store

Member = TypeVar("Member", bound=StrEnum)

MOST_DIGITS = 15
"""Of a number in an address."""


class NotFound(Exception):
    """There is nothing at this address; the text says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A page to be: what it reads, and its template. `read` may raise TurnNotFound and NotFound."""

    template: str
    read: Callable[[Store], Mapping[str, Any]]


View = Callable[[Request, Gateway], Wanted]


def before(request: Request) -> int | None:
    """Where a page of a list goes on; None: it begins with the newest."""
    return number(request.query_params.get("before", ""))


def number(given: str) -> int | None:
    """The whole number that a part of an address names; None if it names none that anything has."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= MOST_DIGITS else None


def chosen(request: Request, name: str, kind: type[Member]) -> Member | None:
    """The member that a field of the address names; None if it names none."""
    given = request.query_params.get(name, "")
    return kind(given) if given in {member.value for member in kind} else None
