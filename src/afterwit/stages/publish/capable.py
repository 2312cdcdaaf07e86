"""Whether an engine can take what a learner writes: asked at the start."""

from __future__ import annotations

from afterwit.core.agreement import EXACT
from afterwit.core.errors import SettingError
from afterwit.engines.port import Capabilities


def check_capable(
    capabilities: Capabilities, *, lora_rank: int, dtypes: tuple[str, str], own_adapters: bool = False
) -> None:
    """SettingError unless the engine takes what a learner of this rank writes (0: whole weights), and has
    adapters of somebody's own if there are any. `dtypes` are what engine and learner compute in."""
    if own_adapters and not capabilities.own_adapters:
        remedy = capabilities.remedies.get("own_adapters", 'set learner.adapters to "shared"')
        raise SettingError(f"this engine serves one adapter for all: {remedy}")
    if lora_rank and not capabilities.adapters:
        remedy = capabilities.remedies.get("adapters", "set learner.lora_rank to 0")
        raise SettingError(f"this engine takes no LoRA adapters: {remedy}")
    if not lora_rank and not capabilities.whole_weights:
        remedy = capabilities.remedies.get("whole_weights", "set learner.lora_rank above 0, such as 16")
        raise SettingError(f"this engine takes no whole weights: {remedy}")
    engine, learner = dtypes
    if not lora_rank and engine not in EXACT and engine != learner:
        raise SettingError(
            f"the engine computes in {engine}, and would round away what an update changes of whole weights "
            f"in {learner}: let both compute in bfloat16 (learner.dtype), or the engine in float32"
        )
