"""Errors of PostgreSQL, in words for the person who runs the machine."""

from __future__ import annotations

import psycopg
from psycopg import errors

from afterwit.core.errors import StoreConflict, StoreError, StoreUnavailable

CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)


def in_plain_words(error: psycopg.Error, place: str) -> StoreError:
    """What went wrong and what to do about it; StoreUnavailable if it may pass."""
    said = " ".join(str(error).split())
    if isinstance(error, CONFLICTS):
        return StoreConflict(f"{place}: another process changes the same turns: {said}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreUnavailable(f"{place} is held by another process for too long: {said}")
    if isinstance(error, errors.DiskFull):
        remedy = "Free some space on the server; what was stored stays stored."
        return StoreUnavailable(f"{place} could not be written: {said} {remedy}")
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        remedy = "Check what the user of store.url may do, and that the server is no standby."
        return StoreUnavailable(f"{place} cannot be written: {said} {remedy}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{place} does not answer: {said}")
    return StoreError(f"{place}: {said}")
