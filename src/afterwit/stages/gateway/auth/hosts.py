"""Checks of Host and Origin, without I/O: they stop web pages from calling a local port."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from afterwit.core.errors import RequestError

LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain"})


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host name or address, without its port, is this machine's own."""
    if host.lower().rstrip(".") in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@lru_cache(maxsize=256)
def host_name(authority: str) -> str:
    """The name in a Host header: `[::1]:80` -> `::1`; empty if it cannot be read."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def check_host(authority: str | None, allowed: Collection[str], *, keyed: bool) -> None:
    """Raise 403 for a Host that is neither loopback nor `allowed`, unless there are keys and no `allowed`."""
    name = host_name(authority or "")
    if is_loopback(name) or name in allowed or (keyed and not allowed):
        return
    raise RequestError(403, "foreign_host", f"This server does not answer to the host {name!r}.")


def check_origin(origin: str | None, authority: str | None, allowed: Collection[str]) -> None:
    """Raise 403 for a page of another site; no Origin, the same host, loopback and `allowed` pass."""
    if origin is None or origin in allowed:
        return
    name = host_name(origin.partition("://")[2])
    if name and (is_loopback(name) or name == host_name(authority or "")):
        return
    raise RequestError(403, "foreign_origin", f"Pages of {origin!r} may not call this server.")
