"""SDKs: what people's own programs are built on."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import ADD, DRIVERS, KEEP, READ, Client, driven
from tests.clients.install import Installed, Npm
from tests.clients.place import Place

OPENAI_CHAT = driven("openai_chat", "openai==3.54.0")
OPENAI_RESPONSES = driven("openai_responses", "openai==3.54.0")
ANTHROPIC = driven("anthropic_messages", "anthropic==2.12.0")
OPENAI_AGENTS = driven("openai_agents", "openai-agents==0.24.0")
PYDANTIC_AI = driven("pydantic_ai_agent", "pydantic-ai-slim[openai]==2.68.0")
LANGCHAIN = driven("langchain_agent", "langchain==1.4.7", "langchain-openai==1.7.3", "langgraph==1.2.22")
LITELLM = driven("litellm_completion", "litellm==1.104.5")
AGNO = driven("agno_agent", "agno==3.1.10", "openai==3.54.0")


def _beside_its_packages(place: Place, installed: Installed) -> Sequence[Sequence[str]]:
    """A module of Node looks for packages in the folders above it."""
    place.write("ai_sdk.mjs", (DRIVERS / "ai_sdk.mjs").read_text())
    (place.home / "node_modules").symlink_to(installed.folder / "node_modules")
    return ()


def _speak_ai_sdk(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
    return ["node", str(place.home / "ai_sdk.mjs"), place.url, str(place.home / "history.json"), *messages]


AI_SDK = Client(
    name="ai-sdk",
    packages=Npm(packages=("ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7")),
    configure=_beside_its_packages,
    speak=_speak_ai_sdk,
    runs=((KEEP, READ), (ADD,)),
)
