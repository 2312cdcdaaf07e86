"""The environment's settings as those of Afterwit's own parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from afterwit.apps.atropos.environment.config import AgenticOPDConfig
from afterwit.apps.config import Settings, load
from afterwit.core.errors import SettingError
from afterwit.stages.hindsight import HindsightSettings

NO_KEY = ("", "x", None)
"""What stands for no key: the library wants some text."""
KEY_VARIABLE = "AFTERWIT_ATROPOS_KEY"
"""Where a key of `--openai.api_key` is put, as the engine reads keys."""


def settings_of(config: AgenticOPDConfig, server: APIServerConfig) -> Settings:
    """Settings of engine, judge and publishing. SettingError if they contradict each other."""
    direct: dict[str, Any] = {
        "judge.votes": config.prm_votes,
        "judge.next_state_chars": config.hint_max_next_state_chars,
        "engine.kind": "embedded",
    }
    if config.engine == "server":
        direct |= _server(server)
    file = Path(config.afterwit_config) if config.afterwit_config else None
    return load(home=Path("/nonexistent"), file=file, direct=direct, environment={})


def hindsight_settings(config: AgenticOPDConfig) -> HindsightSettings:
    return HindsightSettings(top_k=config.distill_topk, doubtful_hints=config.doubtful_hints)


def _server(server: APIServerConfig) -> dict[str, Any]:
    if server.server_type not in ("vllm", "sglang"):
        raise SettingError(
            f'--openai.server_type "{server.server_type}" tells no token ids: it must be vllm or sglang, or '
            "take --env.engine embedded"
        )
    if not server.base_url:
        raise SettingError("--openai.base_url is empty: name the server, or take --env.engine embedded")
    direct = {"engine.kind": server.server_type, "engine.url": server.base_url.removesuffix("/v1")}
    if server.api_key in NO_KEY:
        return direct
    os.environ[KEY_VARIABLE] = server.api_key
    return {**direct, "engine.api_key_env": KEY_VARIABLE}
