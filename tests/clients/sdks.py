"""SDKs: what people's own programs are built on."""

from __future__ import annotations

from tests.clients.client import driven

OPENAI_CHAT = driven("openai_chat", "openai==3.54.0")
OPENAI_RESPONSES = driven("openai_responses", "openai==3.54.0")
ANTHROPIC = driven("anthropic_messages", "anthropic==2.12.0")
OPENAI_AGENTS = driven("openai_agents", "openai-agents==0.24.0")
PYDANTIC_AI = driven("pydantic_ai_agent", "pydantic-ai-slim[openai]==2.68.0")
LANGCHAIN = driven("langchain_agent", "langchain==1.4.7", "langchain-openai==1.7.3", "langgraph==1.2.22")
LITELLM = driven("litellm_completion", "litellm==1.104.5")
