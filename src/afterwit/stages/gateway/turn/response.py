"""A running response: its choices are sampled, sent and recorded, or cancelled if the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from time import perf_counter
from typing import Any

from afterwit.core.errors import (
    ContextExceeded,
    EngineError,
    EngineUnavailable,
    RequestError,
    RequestRefused,
)
from afterwit.engines.port import Generate, Step
from afterwit.stages.gateway.context import Fault, Gateway
from afterwit.stages.gateway.http import INTERNAL
from afterwit.stages.gateway.turn.choice import Choice
from afterwit.stages.gateway.turn.recorder import Recorder
from afterwit.stages.gateway.turn.request import PreparedRequest
from afterwit.stages.gateway.turn.writer import ResponseWriter
from afterwit.wire.request import Field
from afterwit.wire.response import ResponseEvent, Usage

FIELDS: Mapping[str, str] = {"prompt": Field.MESSAGES, "constraint": Field.FORMAT}
"""What a client's request calls a field of `Generate`, if it differs."""


class RunningResponse:
    """Drives the engine for one request. `over`: the last event was sent."""

    def __init__(
        self,
        gateway: Gateway,
        request: PreparedRequest,
        choices: Sequence[Choice],
        recorder: Recorder,
        writer: ResponseWriter,
    ) -> None:
        self._gateway, self._request = gateway, request
        self._choices, self._recorder, self._writer = choices, recorder, writer
        self._started = perf_counter()
        self.over = False

    async def run(self) -> None:
        """Sample and send all choices. Raises RequestError if its status can still be sent.

        The last event is sent when all choices are recorded.
        """
        try:
            async with self._writer.kept_alive(self._version()):
                await _together([self._complete(choice) for choice in self._choices])
        except RequestRefused as error:
            await self._report(_refused(error), error)
            return
        except EngineError as error:
            await self._fail(error)
            return
        except RequestError as error:
            if not await self._writer.fail(error):
                raise
            return
        except Exception:  # our own fault: the client hears of it, and the middleware logs it
            await self._writer.fail(INTERNAL)
            raise
        self._gateway.faults.pop("engine", None)
        usage = self._usage()
        await self._writer.end(usage, self._version())
        self.over = True
        self._gateway.metrics.answered(usage, perf_counter() - self._started)
        self._recorder.delivered(self._choices)

    async def abandon(self) -> None:
        """The client left: what was sampled is recorded, and does not train."""
        self._gateway.metrics.client_left.inc()
        for choice in self._choices:
            await self._recorder.client_left(choice)

    async def _complete(self, choice: Choice) -> None:
        """Sample one choice to its end, sending it as it grows. It is recorded before its end is sent."""
        await self._sample(choice)
        events = choice.reply.finish()
        await self._recorder.save(choice)
        await self._writer.end_choice(choice, events, self._version())

    async def _sample(self, choice: Choice) -> None:
        try:
            async with self._gateway.in_flight.within(self._gateway.settings.response_timeout_s):
                async with aclosing(self._steps(choice)) as steps:
                    async for step in steps:
                        await self._writer.grow(choice, self._take(choice, step))
                        if choice.reply.done:
                            return
        except TimeoutError as error:
            if not choice.reply.completion:
                raise RequestError(
                    504, "timeout", "The engine sampled nothing in the time allowed."
                ) from error

    def _steps(self, choice: Choice) -> AsyncGenerator[Step, None]:
        request = Generate(
            prompt_ids=self._request.prompt.ids,
            sampling=choice.sampling,
            forced_prefix=self._request.prompt.forced,
            constraint=self._request.prompt.constraint,
            top_logprobs=self._request.asked.top_logprobs if self._tells_logprobs() else None,
            adapter=self._request.adapter,
        )
        return self._gateway.engine.generate(request)

    def _tells_logprobs(self) -> bool:
        """Whether the engine is asked for the model's own log-probs. Else the recorded ones do."""
        return self._request.asked.logprobs and self._gateway.engine.capabilities.top_logprobs > 0

    def _take(self, choice: Choice, step: Step) -> list[ResponseEvent]:
        if not choice.reply.completion:
            self._gateway.metrics.first_token.observe(perf_counter() - self._started)
        return choice.reply.push(step)

    async def _fail(self, error: EngineError) -> None:
        """Report the engine's fault: by a status if nothing was sent yet, else inside the stream."""
        self._gateway.faults["engine"] = Fault(message=f"The engine failed: {error}", at=self._gateway.now())
        status = 502 if isinstance(error, EngineUnavailable) else 500
        reported = RequestError(
            status, "engine_failed", "The engine behind this server failed; its log says why."
        )
        await self._report(reported, error)

    async def _report(self, reported: RequestError, error: EngineError) -> None:
        """Send an error inside the stream if one has begun; else raise it."""
        if not await self._writer.fail(reported):
            raise reported from error

    def _usage(self) -> Usage:
        """What a response goes on from counts as prompt."""
        prompt, begun = self._request.prompt, self._begun()
        completion = sum(max(choice.reply.completion - begun, 0) for choice in self._choices)
        return Usage(prompt=len(prompt.ids) + begun, completion=completion)

    def _begun(self) -> int:
        """Tokens of each response that the client gave."""
        return len(self._request.prompt.forced) if self._request.asked.prefill else 0

    def _version(self) -> int:
        """The weights that sampled the response's latest token."""
        versions = [choice.reply.version for choice in self._choices if choice.reply.version is not None]
        return max(versions, default=self._gateway.engine.live(self._request.adapter) or 0)


def _refused(error: RequestRefused) -> RequestError:
    """The engine's refusal as the client's fault."""
    code = "context_length_exceeded" if isinstance(error, ContextExceeded) else "invalid_value"
    return RequestError(400, code, str(error), param=FIELDS.get(error.field, error.field))


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all. The first failure ends the others and is raised, not in a group."""
    if len(works) == 1:
        await works[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
