"""What is doubtful about a verdict."""

from __future__ import annotations

from enum import StrEnum


class Flag(StrEnum):
    """Why a person may want to look at a turn before it trains. The value is what the store holds."""

    TOOL_WORDS = "tool_words"
    """The hint comes from what tools returned: no person spoke."""
    LINK = "link"
    """The hint names an address that no person named."""
    COMMAND = "command"
    """The hint holds a shell command that no person named."""
    STANDING_ORDER = "standing_order"
    """The hint orders something for other conversations or people, or against what others told the model."""
    UNRELATED = "unrelated"
    """The hint names something that nothing in the conversation names."""
    TOOLS_CONTRADICT = "tools_contradict"
    """The reward is against what several other sources approved, and only tools spoke: a call failed."""
    CONTRADICTS = "contradicts"
    """The reward is against what several other sources said, or its source rejected what they approved."""
