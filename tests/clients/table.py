"""Every client, the light ones first."""

from __future__ import annotations

from tests.clients import sdks
from tests.clients.claude_code import CLAUDE_CODE
from tests.clients.client import Client
from tests.clients.codex import CODEX
from tests.clients.hermes import HERMES
from tests.clients.openclaw import OPENCLAW, OPENCLAW_MESSAGES, OPENCLAW_RESPONSES
from tests.clients.opencode import OPENCODE
from tests.clients.qwen_code import QWEN_CODE

CLIENTS: tuple[Client, ...] = (
    sdks.OPENAI_CHAT,
    sdks.OPENAI_RESPONSES,
    sdks.ANTHROPIC,
    sdks.OPENAI_AGENTS,
    sdks.PYDANTIC_AI,
    sdks.LITELLM,
    sdks.LANGCHAIN,
    CODEX,
    CLAUDE_CODE,
    OPENCODE,
    QWEN_CODE,
    HERMES,
    OPENCLAW,
    OPENCLAW_RESPONSES,
    OPENCLAW_MESSAGES,
)
