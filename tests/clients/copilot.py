"""GitHub's Copilot CLI with a provider of one's own, on chat completions."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    place.environment.update(
        COPILOT_PROVIDER_BASE_URL=place.url,
        COPILOT_PROVIDER_API_KEY="none",
        COPILOT_MODEL="afterwit",
        COPILOT_PROVIDER_MAX_PROMPT_TOKENS="100000",
        COPILOT_PROVIDER_MAX_OUTPUT_TOKENS="8000",
    )
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    options = ["--no-auto-update", "--allow-all-tools", "--log-level", "none"]
    resumed = ["--continue"] if run else []
    return [installed.command("copilot"), *options, *resumed, "--prompt", *messages]


COPILOT = Client(
    name="copilot",
    packages=Npm(packages=("@github/copilot@1.0.102",)),
    configure=_configure,
    speak=_speak,
)
