"""Keys: their form, their scopes, and how long they stay known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from afterwit.errors import RequestError, StoreError
from afterwit.gateway.auth import (
    LOCAL,
    Caller,
    KeyCache,
    Permission,
    hash_key,
    new_key,
    owner_of,
    scope_of,
    sent_key,
)
from afterwit.store import Key


def key(name: str, scopes: Iterable[str], hash: str, revoked: float | None = None) -> Key:
    return Key(name=name, scopes=frozenset(scopes), hash=hash, created=0.0, revoked=revoked)


class Keys:
    """A store of keys that counts how often it is read."""

    def __init__(self, *keys: Key) -> None:
        self.keys, self.reads, self.now, self.fails = list(keys), 0, 0.0, False

    async def read(self):
        self.reads += 1
        if self.fails:
            raise StoreError("the disk is gone")
        return self.keys

    def cache(self) -> KeyCache:
        return KeyCache(self.read, refresh_s=2.0, now=lambda: self.now, token="the token")


CHAT = key("ann", frozenset({"chat"}), hash_key("aw-1"))


def test_new_keys_have_a_prefix_and_differ():
    one, other = new_key(), new_key()
    assert one.startswith("aw-")
    assert len(one) > 40
    assert one != other


def test_a_key_may_be_sent_as_bearer_or_as_x_api_key():
    assert sent_key("Bearer aw-1", None) == "aw-1"
    assert sent_key("bearer  aw-1 ", None) == "aw-1"
    assert sent_key(None, "aw-2") == "aw-2"
    assert sent_key("Basic abc", "aw-2") == "aw-2"
    assert sent_key("Bearer ", None) is None
    assert sent_key(None, "") is None


def test_sessions_are_partitioned_by_key_and_client_family():
    ann = Caller(name="ann/lab", scopes=frozenset())
    assert scope_of(ann, "OpenAI/Python 3.52.0") == "ann/lab/openai"
    assert scope_of(ann, "opencode/1.18 ai-sdk/4") == "ann/lab/opencode"
    assert scope_of(ann, None) == "ann/lab/unknown"
    assert owner_of(scope_of(ann, "a/b")) == "ann/lab"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("OpenAI/Python 3.52.0", "AsyncOpenAI/Python 3.52.0"),
        ("ai/6.0.326 ai-sdk/provider-utils/4.0.65", "ai-sdk/anthropic/3.0.140 ai-sdk/provider-utils/4.0.65"),
        ("codex_exec/0.169.0 (Debian)", "codex_cli_rs/0.169.0 (Debian)"),
    ],
)
def test_a_program_that_calls_in_two_ways_is_one_client(one: str, other: str):
    ann = Caller(name="ann", scopes=frozenset())
    assert scope_of(ann, one) == scope_of(ann, other) != scope_of(ann, "asynchronous/1")


def test_a_scope_permits_only_itself_and_admin_permits_everything():
    reader = Caller(name="r", scopes=frozenset({"read"}))
    with pytest.raises(RequestError) as refused:
        reader.require(Permission.CHAT)
    assert (refused.value.status, refused.value.code) == (403, "insufficient_scope")
    assert refused.value.message == "The key 'r' lacks the scope 'chat'."
    admin = Caller(name="a", scopes=frozenset({"admin"}))
    for scope in Permission:
        admin.require(scope)


async def test_without_keys_this_machine_may_chat_and_teach_its_owner_everything_and_others_nothing():
    cache = Keys().cache()
    await cache.refresh()
    assert cache.caller("anything", "127.0.0.1") is LOCAL
    assert cache.caller(None, None) is LOCAL
    assert {scope for scope in Permission if LOCAL.may(scope)} == {Permission.CHAT, Permission.TEACH}
    owner = cache.caller("the token", "127.0.0.1")
    assert owner is not None
    assert all(map(owner.may, Permission))
    with pytest.raises(RequestError) as refused:
        cache.caller(None, "10.0.0.7")
    assert refused.value.status == 403


async def test_if_there_are_keys_an_unknown_key_is_refused_and_no_key_has_no_caller():
    cache = Keys(CHAT).cache()
    await cache.refresh()
    assert cache.caller("aw-1", "10.0.0.7") == Caller(name="ann", scopes=frozenset({"chat"}))
    assert cache.caller(None, "127.0.0.1") is None
    assert cache.holder(hash_key("the token")) is None
    with pytest.raises(RequestError) as refused:
        cache.caller("aw-2", "127.0.0.1")
    assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")


async def test_keys_are_read_again_only_after_a_while_and_then_a_revoked_one_is_refused():
    keys = Keys(CHAT)
    cache = keys.cache()
    await cache.refresh()
    keys.keys = [key("ann", CHAT.scopes, CHAT.hash, revoked=1.0), key("bob", CHAT.scopes, "other")]
    keys.now = 1.9
    await cache.refresh()
    assert keys.reads == 1
    assert cache.caller("aw-1", "127.0.0.1") is not None
    keys.now = 2.0
    await cache.refresh()
    with pytest.raises(RequestError):
        cache.caller("aw-1", "127.0.0.1")


async def test_keys_stay_known_while_the_store_fails_but_nobody_may_call_before_they_were_read():
    keys = Keys(CHAT)
    cache = keys.cache()
    keys.fails = True
    with pytest.raises(RequestError) as refused:
        await cache.refresh()
    assert refused.value.status == 503
    keys.fails = False
    await cache.refresh()
    keys.fails, keys.now = True, 10.0
    await cache.refresh()
    assert cache.caller("aw-1", "127.0.0.1") is not None


async def test_keys_stay_known_while_the_store_takes_long_and_are_replaced_once_it_answers():
    keys, held = Keys(CHAT), asyncio.Event()

    async def read():
        if keys.reads:
            await held.wait()
        return await keys.read()

    cache = KeyCache(read, refresh_s=2.0, now=lambda: keys.now, token="the token")
    await cache.refresh()
    keys.keys, keys.now = [key("bob", CHAT.scopes, "other")], 10.0
    for _ in range(2):
        await cache.refresh()
        assert cache.caller("aw-1", "127.0.0.1") is not None
    held.set()
    await cache.refresh()
    with pytest.raises(RequestError):
        cache.caller("aw-1", "127.0.0.1")
    assert keys.reads == 2


async def test_after_the_last_key_is_revoked_this_machine_may_call_without_one_and_no_other_may():
    cache = Keys(key("ann", CHAT.scopes, CHAT.hash, revoked=1.0)).cache()
    await cache.refresh()
    assert not cache.keyed
    assert cache.caller(None, "127.0.0.1") is LOCAL
    with pytest.raises(RequestError) as refused:
        cache.caller("aw-1", "10.0.0.7")
    assert refused.value.code == "loopback_only"
