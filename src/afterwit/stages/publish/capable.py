"""Whether an engine can take what a learner writes: asked at the start."""

from __future__ import annotations

from afterwit.core.errors import SettingError
from afterwit.engines.port import Capabilities


def check_capable(capabilities: Capabilities, *, lora_rank: int, own_adapters: bool = False) -> None:
    """SettingError unless the engine takes what a learner of this rank writes (0: whole weights), and has
    adapters of somebody's own if there are any."""
    if own_adapters and not capabilities.own_adapters:
        remedy = capabilities.remedies.get("own_adapters", 'set learner.adapters to "shared"')
        raise SettingError(f"this engine serves one adapter for all: {remedy}")
    if lora_rank and not capabilities.adapters:
        remedy = capabilities.remedies.get("adapters", "set learner.lora_rank to 0")
        raise SettingError(f"this engine takes no LoRA adapters: {remedy}")
    if not lora_rank and not capabilities.whole_weights:
        remedy = capabilities.remedies.get("whole_weights", "set learner.lora_rank above 0, such as 16")
        raise SettingError(f"this engine takes no whole weights: {remedy}")
