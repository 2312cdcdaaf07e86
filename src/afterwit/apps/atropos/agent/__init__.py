"""The agent: a policy that is sampled turn by turn, and tools in a box."""

from afterwit.apps.atropos.agent.episode import Episode
from afterwit.apps.atropos.agent.loop import AgentLimits, Ending, Played, play
from afterwit.apps.atropos.agent.policy import EnginePolicy, Policy, Response
from afterwit.apps.atropos.agent.tools import TOOLS

__all__ = [
    "TOOLS",
    "AgentLimits",
    "Ending",
    "EnginePolicy",
    "Episode",
    "Played",
    "Policy",
    "Response",
    "play",
]
