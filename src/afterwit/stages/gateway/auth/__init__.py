"""Who may call, and for what: API keys, permissions, Host and Origin."""

from afterwit.stages.gateway.auth.hosts import check_host, check_origin, is_loopback
from afterwit.stages.gateway.auth.key_cache import KeyCache
from afterwit.stages.gateway.auth.keys import (
    Caller,
    Permission,
    check_name,
    group_of,
    hash_key,
    new_key,
    owner_of,
    scope_of,
    sent_key,
)

__all__ = [
    "Caller",
    "KeyCache",
    "Permission",
    "check_host",
    "check_name",
    "check_origin",
    "group_of",
    "hash_key",
    "is_loopback",
    "new_key",
    "owner_of",
    "scope_of",
    "sent_key",
]
