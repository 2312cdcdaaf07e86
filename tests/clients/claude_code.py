"""Claude Code, on the Messages API."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    place.environment.update(
        ANTHROPIC_BASE_URL=place.root,
        ANTHROPIC_AUTH_TOKEN="none",
        ANTHROPIC_MODEL="afterwit",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="afterwit",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    resumed = ["--continue"] if run else []
    return [installed.command("claude"), "-p", *resumed, "--allowedTools", "Bash", "--", *messages]


CLAUDE_CODE = Client(
    name="claude-code",
    packages=Npm(packages=("@anthropic-ai/claude-code@2.1.330",)),
    configure=_configure,
    speak=_speak,
)
