"""Hermes Agent, on chat completions."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Pip
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    model = f"{{provider: custom, default: afterwit, base_url: {place.url}, api_key: none}}"
    place.write(".hermes/config.yaml", f"model: {model}\n")
    place.environment.update(HERMES_HOME=str(place.home / ".hermes"))
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    resumed = ["--continue"] if run else []
    return [installed.command("hermes"), "chat", "-Q", "--yolo", *resumed, "-q", *messages]


HERMES = Client(
    name="hermes", packages=Pip(packages=("hermes-agent==0.19.0",)), configure=_configure, speak=_speak
)
