"""What a round of the event loop writes to a connection leaves by one call, in order, before it closes."""

from __future__ import annotations

import asyncio

from afterwit.gateway.http_server import MOST_BYTES, GatheringTransport


class Wire(asyncio.Transport):
    """A connection that tells what came."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[bytes] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.came.append(data)

    def close(self) -> None:
        self.came.append(b"closed")

    def abort(self) -> None:
        self.came.append(b"aborted")

    def is_closing(self) -> bool:
        return bool(self.came) and self.came[-1] in (b"closed", b"aborted")

    def get_write_buffer_size(self) -> int:
        return 7


def gathering() -> tuple[GatheringTransport, Wire]:
    wire = Wire()
    return GatheringTransport(wire, asyncio.get_running_loop()), wire


async def test_writes_of_one_round_of_the_loop_leave_together_and_those_of_the_next_after_them():
    transport, wire = gathering()
    for piece in (b"a", b"b", b"c"):
        transport.write(piece)
    assert wire.came == []
    assert transport.get_write_buffer_size() == 3 + 7
    await asyncio.sleep(0)
    transport.write(b"d")
    await asyncio.sleep(0)
    assert wire.came == [b"abc", b"d"]
    assert transport.get_write_buffer_size() == 7


async def test_what_is_large_does_not_wait():
    transport, wire = gathering()
    large = b"x" * MOST_BYTES
    transport.write(b"a")
    transport.write(large)
    assert wire.came == [b"a" + large]
    await asyncio.sleep(0)
    assert len(wire.came) == 1


async def test_a_connection_closes_behind_what_waits():
    transport, wire = gathering()
    transport.write(b"a")
    transport.close()
    await asyncio.sleep(0)
    assert wire.came == [b"a", b"closed"]


async def test_nothing_is_written_to_a_connection_that_closed_meanwhile():
    transport, wire = gathering()
    transport.write(b"a")
    transport.abort()
    await asyncio.sleep(0)
    assert wire.came == [b"aborted"]
    assert transport.is_closing()
