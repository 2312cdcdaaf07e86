"""Kimi Code, on the Responses API."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import Client
from tests.clients.install import Installed, Npm
from tests.clients.place import Place


def _configure(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    place.write(
        ".kimi-code/config.toml",
        f"""\
default_model = "afterwit"
telemetry = false

[providers.afterwit]
type = "openai_responses"
base_url = "{place.url}"
api_key = "none"

[models.afterwit]
provider = "afterwit"
model = "afterwit"
max_context_size = 131072
capabilities = ["thinking", "tool_use"]
""",
    )
    place.environment.update(PATH=f"{installed.folder / 'node_modules' / '.bin'}:/usr/bin:/bin")
    return ()


def _speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    return [installed.command("kimi"), *(["--continue"] if run else []), "--prompt", *messages]


KIMI_CODE = Client(
    name="kimi-code",
    packages=Npm(packages=("@moonshot-ai/kimi-code@2.1.0",), node="26.10.0"),
    configure=_configure,
    speak=_speak,
)
