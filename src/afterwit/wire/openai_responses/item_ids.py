"""Ids of output items. They contain their turn, so that a client can refer to an item it does not repeat."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

RESPONSE_PREFIX = "resp_"
_ITEM = re.compile(r"(msg|rs|fc)_([0-9a-z]{26})(\d{1,4})", re.ASCII)


class ItemKind(StrEnum):
    """What an item is, as its id says."""

    MESSAGE = "msg"
    REASONING = "rs"
    CALL = "fc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemId:
    """An item of one of our responses."""

    kind: ItemKind
    turn: str
    index: int
    """Its place among the turn's items of this kind."""

    def __str__(self) -> str:
        return f"{self.kind}_{self.turn}{self.index}"


def read_item_id(identifier: str) -> ItemId | None:
    """The item that an id names; None if the id is not one of ours."""
    found = _ITEM.fullmatch(identifier)
    if found is None:
        return None
    return ItemId(kind=ItemKind(found[1]), turn=found[2], index=int(found[3]))
