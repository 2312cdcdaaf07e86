"""The plugin's hook for slime's contract test, which looks for the mark that its own example leaves."""

from __future__ import annotations

from typing import Any

from afterwit_hosts.slime import training


def postprocess(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    args.rollout_data_postprocess_called = True
    training.postprocess(args, rollout_id, rollout_data)
