"""The command lines of a plan as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from afterwit.apps.config import Settings
from afterwit.apps.planning.cards import CPU, visible
from afterwit.apps.planning.plan import Models, Part
from afterwit.apps.planning.servers import other_servers, own_cards, policy_servers
from afterwit.engines.server.settings import ServerSettings


def lines(
    settings: Settings, models: Models, parts: Sequence[Part], *, given: Sequence[str] = ()
) -> Iterator[str]:
    """A line for each server, then Afterwit's own, with the flags `given`.

    SettingError if an address has no port.
    """
    if models.served.here:
        servers = list(policy_servers(settings, models, parts))
    else:
        servers = []
        if isinstance(settings.engine, ServerSettings) and any(part.name == "policy" for part in parts):
            name = models.served.name
            yield f"# download {name} first: the flags of its servers follow from the names of its weights"
    for server in (*servers, *other_servers(settings, models, parts)):
        yield _line(server.command.environment, server.command.arguments)
    own, embedded = own_cards(settings, parts), not isinstance(settings.engine, ServerSettings)
    policy = next((part for part in parts if part.name == "policy"), None)
    on = policy.cards[0] if embedded and policy is not None else None
    flags = () if on is None else ("--set", f"engine.device={_device(own.index(on), on.name)}")
    yield _line(visible(own), ("./afterwit", "serve", models.served.name, *given, *flags))


def _device(index: int, name: str) -> str:
    return "cpu" if name == CPU else f"cuda:{index}"


def _line(environment: Mapping[str, str], words: Sequence[str]) -> str:
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(words)]
    )
