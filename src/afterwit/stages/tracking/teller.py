"""Which of several processes over one store tells."""

from __future__ import annotations

import orjson

from afterwit.store import Store

NOTE = "tracking.teller"
LEASE_S = 300.0
"""Seconds after which another process takes over from one that is gone."""


def may_tell(store: Store, owner: str, *, now: float) -> bool:
    """Whether this process tells now: it did so last, or whoever did is gone."""
    with store.transaction():
        text = store.note(NOTE)
        held = orjson.loads(text) if text is not None else None
        if held is not None and held["owner"] != owner and held["until"] > now:
            return False
        if held is None or held["owner"] != owner or held["until"] < now + LEASE_S / 2:
            store.set_note(NOTE, orjson.dumps({"owner": owner, "until": now + LEASE_S}).decode())
    return True
