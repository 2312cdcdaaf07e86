"""Writes turns into the store. If it fails, serving goes on: such turns are not recorded and cannot train."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from afterwit.errors import StoreError
from afterwit.gateway.binder import Bound, store_turn
from afterwit.gateway.context import Fault, Gateway
from afterwit.gateway.prepare import PreparedRequest
from afterwit.gateway.reply import Choice
from afterwit.store import Store
from afterwit.turn import Finish, Turn

T = TypeVar("T")


log = logging.getLogger("afterwit.gateway")


class Recorder:
    """Records the choices of one response. `bound` is None if the store did not answer."""

    def __init__(self, gateway: Gateway, request: PreparedRequest, bound: Bound | None) -> None:
        self._gateway, self._request, self._bound = gateway, request, bound

    async def save(self, choice: Choice) -> None:
        """The finished choice, durable on return unless the store fails. Cancelling does not stop it."""
        choice.saving = asyncio.ensure_future(self._save(choice, choice.reply.ending))
        await asyncio.shield(choice.saving)

    async def client_left(self, choice: Choice) -> None:
        """Record what was sampled of a choice before its client left, unless its record is on its way."""
        if choice.saving is not None:
            await choice.saving
        else:
            await self._save(choice, Finish.CLIENT_LEFT)

    def delivered(self, choices: Iterable[Choice]) -> None:
        """The client has the whole response."""
        if self._bound is not None:
            turns = [choice.turn for choice in choices]
            self._gateway.deliveries.tell(turns, partial(note_fault, self._gateway))

    async def _save(self, choice: Choice, finish: Finish) -> None:
        bound = self._bound
        if bound is not None and await try_store(self._gateway, self._writing(choice, finish, bound)):
            self._gateway.faults.pop("store", None)
        else:
            self._gateway.metrics.unrecorded.inc()

    def _writing(self, choice: Choice, finish: Finish, bound: Bound) -> Callable[[Store], bool]:
        turn, own, now = self._turn(choice, finish, bound), self._request.turns, self._gateway.now()

        def write(store: Store) -> bool:
            store_turn(store, bound, turn, own=own, now=now)
            return True

        return write

    def _turn(self, choice: Choice, finish: Finish, bound: Bound) -> Turn:
        request, binding = self._request, bound.binding
        return Turn(
            id=choice.turn,
            scope=request.scope,
            session=binding.session,
            parent=binding.parent,
            kind=bound.kind,
            created=request.created,
            model=self._gateway.engine.facts.model,
            conversation=request.prompt.conversation,
            prompt_ids=request.prompt.ids,
            sampling=choice.sampling,
            sampled=choice.reply.sampled(),
            message=choice.message(),
            finish=finish,
            teaches=request.teaches,
            adapter=request.adapter,
        )


async def try_store(gateway: Gateway, work: Callable[[Store], T]) -> T | None:
    """What the store returns, None if it fails. /readyz shows the fault until a turn is recorded again."""
    try:
        return await gateway.store.call(work)
    except StoreError as error:
        note_fault(gateway, error)
        return None


def note_fault(gateway: Gateway, error: StoreError) -> None:
    """The store failed: say so once."""
    if "store" not in gateway.faults:
        log.error("turns are not recorded: %s", error)
    message = f"Turns are served but not recorded: {error}"
    gateway.faults["store"] = Fault(message=message, at=gateway.now())
