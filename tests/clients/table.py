"""Every client, the light ones first."""

from __future__ import annotations

from tests.clients import sdks
from tests.clients.claude_code import CLAUDE_CODE
from tests.clients.client import Client
from tests.clients.codex import CODEX
from tests.clients.copilot import COPILOT
from tests.clients.hermes import HERMES
from tests.clients.kimi_code import KIMI_CODE
from tests.clients.openclaw import OPENCLAW, OPENCLAW_MESSAGES, OPENCLAW_RESPONSES
from tests.clients.opencode import OPENCODE
from tests.clients.pi import PI
from tests.clients.qwen_code import QWEN_CODE

CLIENTS: tuple[Client, ...] = (
    sdks.OPENAI_CHAT,
    sdks.OPENAI_RESPONSES,
    sdks.ANTHROPIC,
    sdks.OPENAI_AGENTS,
    sdks.PYDANTIC_AI,
    sdks.LITELLM,
    sdks.LANGCHAIN,
    sdks.AGNO,
    sdks.AI_SDK,
    PI,
    CODEX,
    CLAUDE_CODE,
    OPENCODE,
    QWEN_CODE,
    KIMI_CODE,
    COPILOT,
    HERMES,
    OPENCLAW,
    OPENCLAW_RESPONSES,
    OPENCLAW_MESSAGES,
)
