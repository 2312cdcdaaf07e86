"""That weights on a server are the ones they were: the log-probs of some ids, then and now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from afterwit.core.agreement import gap, most, share
from afterwit.core.errors import EngineError

LENGTH = 24
Ask = Callable[[float], Awaitable[Sequence[float]]]
"""The log-probs now, of an adapter that is taken so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Ids, and log-probs of ids[1:] by weights that were right."""

    ids: tuple[int, ...]
    said: dict[float, tuple[float, ...]] = field(default_factory=dict)
    """By how many times the adapter was taken: 1 are the weights themselves, 0 the base's."""

    async def check(self, ask: Ask, dtype: str) -> None:
        """EngineError unless the same weights answer now, by a server that computes in `dtype`."""
        for times, then in self.said.items():
            now = await ask(times)
            try:
                apart = gap(then, now)
            except ValueError as error:
                raise EngineError(f"the server scored another number of ids: {error}") from error
            if times > 1.0 and (base := self.said.get(0.0)) is not None:
                found = share(now, then, base)
                if not found.is_right:
                    raise EngineError(
                        f"the server's log-probs stand {found.value:.2g} of the way from the base's to those "
                        "that these weights gave, and 1 is right: it does not serve the same weights"
                    )
            elif not apart <= most(dtype):
                raise EngineError(
                    f"the server's log-probs differ from those that these weights gave by {apart:.2g} on "
                    f"average, and at most {most(dtype):g} is right: it does not serve the same weights"
                )


def proof_with(proof: Proof | None, ids: Sequence[int], times: float, said: Sequence[float]) -> Proof:
    """A proof with one more answer; of other ids it begins anew."""
    kept = proof.said if proof is not None and proof.ids == tuple(ids) else {}
    return Proof(ids=tuple(ids), said={**kept, times: tuple(said)})


def sample_ids(vocabulary: int) -> tuple[int, ...]:
    """Ids spread over a vocabulary, alike each time."""
    return tuple((7919 * place + 17) % vocabulary for place in range(LENGTH))
