"""OpenClaw, in each of the three APIs that it speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tests.clients.client import KEEP, READ, Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place

PACKAGES = Npm(packages=("openclaw@2026.9.6",), node="26.10.0")
SKIPPED = ("channels", "daemon", "health", "skills", "search", "ui", "hooks")


def _configure(api: str, place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    url = place.root if api == "anthropic" else place.url
    command = [installed.command("openclaw"), "onboard", "--non-interactive", "--accept-risk"]
    command += ["--auth-choice", "custom-api-key", "--custom-api-key", "none", "--custom-base-url", url]
    command += ["--custom-model-id", "afterwit", "--custom-provider-id", "afterwit"]
    command += ["--custom-compatibility", api, "--workspace", str(place.work)]
    bin = installed.folder / "node_modules" / ".bin"
    place.environment.update(PATH=f"{bin}:/usr/bin:/bin")
    return [[*command, *(f"--skip-{each}" for each in SKIPPED)]]


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    session = ["--agent", "main", "--session-key", "agent:main:notes"]
    return [installed.command("openclaw"), "agent", "--local", *session, "--message", *messages]


OPENCLAW = Client(
    name="openclaw", packages=PACKAGES, configure=partial(_configure, "openai"), speak=_speak, room="openclaw"
)
OPENCLAW_RESPONSES = replace(
    OPENCLAW,
    name="openclaw-responses",
    configure=partial(_configure, "openai-responses"),
    runs=((KEEP,), (READ,)),
)
OPENCLAW_MESSAGES = replace(
    OPENCLAW_RESPONSES, name="openclaw-messages", configure=partial(_configure, "anthropic")
)
