"""The adapter that a request uses."""

from __future__ import annotations

from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.turn import AdapterPolicy
from tests.gateway.serving import USER, Serving, serving

GROUPS = AdapterPolicy(division="per_session_group", shared_keys=("ci",))


async def asked(gateway: Serving, key: str, group: str | None = None) -> str:
    """The adapter that the engine was asked for."""
    headers = {"authorization": f"Bearer {key}"} | ({} if group is None else {"X-Session-Group": group})
    answer = await gateway.http.post(
        "/chat/completions", json={"model": "tiny", "messages": list(USER)}, headers=headers
    )
    assert answer.status_code == 200, answer.text
    return gateway.engine.asked[-1].adapter


async def test_without_adapters_of_their_own_all_are_served_by_the_shared_one(
    tmp_path: Path, renderer: Renderer
) -> None:
    async with serving(tmp_path, renderer) as gateway:
        assert (await gateway.ask()).status_code == 200
        assert gateway.engine.asked[-1].adapter == "shared"
        (record,) = await gateway.records()
        assert record.sampled_turn.adapter == "shared"


async def test_each_key_asks_for_its_own_adapter(tmp_path: Path, renderer: Renderer) -> None:
    policy = AdapterPolicy(division="per_key", shared_keys=("ci",))
    async with serving(tmp_path, renderer, adapters=policy) as gateway:
        gateway.engine.own["key:ann"] = 7
        assert (await gateway.ask()).json()["system_fingerprint"] == "v0"
        ann, ci = [await gateway.add_key(name, "chat", "teach") for name in ("ann", "ci")]
        assert await asked(gateway, ann, "work") == "key:ann"
        assert await asked(gateway, ci) == "shared"
        records = await gateway.records()
        assert [record.sampled_turn.adapter for record in records] == ["key:local", "key:ann", "shared"]
        assert records[1].sampled_turn.sampled.oldest_version == 7


async def test_a_group_is_a_key_s_own_and_its_sessions_are_bound_apart(
    tmp_path: Path, renderer: Renderer
) -> None:
    async with serving(tmp_path, renderer, adapters=GROUPS) as gateway:
        ann, bob, ci = [
            await gateway.add_key(name, "chat", "teach", "reward") for name in ("ann", "bob", "ci")
        ]
        found = [await asked(gateway, key, group) for key in (ann, bob) for group in ("work", None, "")]
        assert found == ["group:ann/work", "key:ann", "key:ann", "group:bob/work", "key:bob", "key:bob"]
        assert await asked(gateway, ci, "work") == "shared"
        records = await gateway.records()
        scopes = [record.turn.scope.partition("/")[2] for record in records]
        assert [scope.endswith("#work") for scope in scopes] == [True, False, False] * 2 + [True]
        assert len({record.turn.session for record in records[:2]}) == 2
        feedback = {"turn": records[0].turn.id, "thumb": "up"}
        headers = {"authorization": f"Bearer {ann}"}
        assert (await gateway.http.post("/feedback", json=feedback, headers=headers)).status_code == 200
        headers = {"authorization": f"Bearer {bob}"}
        assert (await gateway.http.post("/feedback", json=feedback, headers=headers)).status_code == 404


async def test_what_cannot_name_a_group_is_refused(tmp_path: Path, renderer: Renderer) -> None:
    async with serving(tmp_path, renderer, adapters=GROUPS) as gateway:
        for name in ("a/b", "x" * 65, "a b", "a#b"):
            answer = await gateway.http.post(
                "/chat/completions",
                json={"model": "tiny", "messages": list(USER)},
                headers={"X-Session-Group": name},
            )
            assert answer.status_code == 400
            assert "1 to 64 letters" in answer.json()["error"]["message"]
    async with serving(tmp_path / "keys", renderer, adapters=AdapterPolicy(division="per_key")) as gateway:
        gateway.http.headers["X-Session-Group"] = "a/b"
        assert (await gateway.ask()).status_code == 200
