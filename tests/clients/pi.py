"""pi, on chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    model = {"id": "afterwit", "contextWindow": 131072, "maxTokens": 8192}
    provider = {"baseUrl": place.url, "apiKey": "none", "api": "openai-completions", "models": [model]}
    place.write(".pi/agent/models.json", json.dumps({"providers": {"afterwit": provider}}))
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    resumed = ["--continue"] if run else []
    options = ["--provider", "afterwit", "--model", "afterwit", "--print"]
    return [installed.command("pi"), *options, *resumed, *messages]


PI = Client(
    name="pi",
    packages=Npm(packages=("@mariozechner/pi-coding-agent@0.73.1",)),
    configure=_configure,
    speak=_speak,
)
