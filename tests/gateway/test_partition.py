"""The turns of one key are not even read for another: the time taken would reveal that they exist."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from afterwit.chat_format.render import Renderer
from afterwit.store import Record
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Message
from tests.gateway.serving import USER, serving

READ: list[str] = []
"""Turns whose content was read."""


class Watched(SqliteStore):
    def turn(self, turn: str) -> Record:
        READ.append(turn)
        return super().turn(turn)

    def messages_of(self, turns: Collection[str]) -> dict[str, Message]:
        READ.extend(turns)
        return super().messages_of(turns)


async def test_no_way_to_name_anothers_turn_reads_its_content(tmp_path: Path, renderer: Renderer) -> None:
    async with serving(tmp_path, renderer, opened=Watched) as gateway:
        ann, bob = [await gateway.add_key(name, "chat", "teach", "reward") for name in ("ann", "bob")]

        async def statuses(key: str, response: str) -> list[int]:
            turn = response.removeprefix("resp_")
            asked: list[tuple[str, dict[str, Any]]] = [
                ("/responses", {"input": "And?", "previous_response_id": response}),
                ("/responses", {"input": [{"type": "item_reference", "id": f"msg_{turn}0"}]}),
                ("/feedback", {"response_id": response, "thumb": "up"}),
            ]
            gateway.http.headers["authorization"] = f"Bearer {key}"
            got = await gateway.http.get(f"/responses/{response}")
            sent = [await gateway.http.post(path, json={"model": "tiny"} | body) for path, body in asked]
            return [answer.status_code for answer in (got, *sent)]

        gateway.http.headers["authorization"] = f"Bearer {ann}"
        made = await gateway.http.post("/responses", json={"model": "tiny", "input": USER})
        response = made.json()["id"]
        READ.clear()
        assert await statuses(bob, response) == [404, 404, 404, 404]
        assert READ == []
        assert await statuses(ann, response) == [200, 200, 200, 200]
        assert READ
