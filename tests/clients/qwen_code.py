"""Qwen Code, on chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place

SETTINGS = {"tools": {"shell": {"enableInteractiveShell": True}}}
"""Without a terminal it stops reading at a command's exit, and on a busy machine reports no output."""


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    place.environment.update(OPENAI_BASE_URL=place.url, OPENAI_API_KEY="none", OPENAI_MODEL="afterwit")
    place.write(".qwen/settings.json", json.dumps(SETTINGS))
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    options = ["--auth-type", "openai", "--yolo", *(["--continue"] if run else [])]
    return [installed.command("qwen"), *options, *messages]


QWEN_CODE = Client(
    name="qwen-code",
    packages=Npm(packages=("@qwen-code/qwen-code@0.24.4",)),
    configure=_configure,
    speak=_speak,
)
