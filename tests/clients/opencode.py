"""opencode, on chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Afterwit",
        "options": {"baseURL": place.url, "apiKey": "none"},
        "models": {"afterwit": {"name": "afterwit", "limit": {"context": 131072, "output": 8192}}},
    }
    settings = {"provider": {"afterwit": provider}, "model": "afterwit/afterwit", "autoupdate": False}
    place.write(".config/opencode/opencode.json", json.dumps(settings))
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    return [installed.command("opencode"), "run", *(["--continue"] if run else []), *messages]


OPENCODE = Client(
    name="opencode", packages=Npm(packages=("opencode-ai@1.18.33",)), configure=_configure, speak=_speak
)
