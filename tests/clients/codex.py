"""Codex, on the Responses API."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    place.write(
        ".codex/config.toml",
        f"""\
model = "afterwit"
model_provider = "afterwit"

[model_providers.afterwit]
name = "Afterwit"
base_url = "{place.url}"
wire_api = "responses"
""",
    )
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    resumed = ["resume", "--last"] if run else []
    options = ["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"]
    return [installed.command("codex"), "exec", *resumed, *options, *messages]


CODEX = Client(
    name="codex", packages=Npm(packages=("@openai/codex@0.169.0",)), configure=_configure, speak=_speak
)
