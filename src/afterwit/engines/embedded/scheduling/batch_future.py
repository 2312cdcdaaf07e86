"""Several responses that are awaited as one."""

from __future__ import annotations

from concurrent.futures import Future

from afterwit.engines.embedded.scheduling.sequence import Deliver
from afterwit.engines.port import Step


class BatchFuture:
    """`done` is set once the last response has ended: to the steps of each, in order, or to the first error.

    It wakes its waiter once, not once per token.
    """

    def __init__(self, responses: int) -> None:
        self.done: Future[list[list[Step]]] = Future()
        self._steps: list[list[Step]] = [[] for _ in range(responses)]
        self._running = responses
        self._error: Exception | None = None
        if not responses:
            self.done.set_result([])

    def deliver(self, index: int) -> Deliver:
        """What takes the steps of one response, in the worker's thread."""

        def take(event: Step | Exception) -> None:
            if isinstance(event, Exception):
                self._error = self._error or event
                self._end()
                return
            self._steps[index].append(event)
            if event.ended:
                self._end()

        return take

    def _end(self) -> None:
        self._running -= 1
        if self._running or self.done.cancelled():
            return
        if self._error is not None:
            self.done.set_exception(self._error)
        else:
            self.done.set_result(self._steps)
