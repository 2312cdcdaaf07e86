"""verl's FSDP2 engine with the learner's settings. The optimiser is not verl's: it is given to it."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from verl.trainer.config import CheckpointConfig
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import FSDPEngineWithLMHead

from afterwit.api.learning import device_of, without_dropout
from afterwit.api.settings import LearnerSettings
from afterwit.api.turns import SettingError
from afterwit_hosts.verl.settings import Options

ATTENTION = {"attn_implementation": "sdpa"}
"""In the place of verl's choice, which is not installed with it."""


def engine_of(folder: Path, settings: LearnerSettings, options: Options) -> FSDPEngineWithLMHead:
    """The engine with the model in a folder, over all processes of the group; `settings` are `in_verl`.

    A process that is in no group becomes one of its own. SettingError if verl does not know an option.
    """
    if not dist.is_initialized():
        backend = "nccl" if device_of(settings.device).type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    model = {
        "path": str(folder),
        "load_tokenizer": False,
        "enable_gradient_checkpointing": False,
        "use_remove_padding": False,
        "override_config": ATTENTION,
        **options.model,
    }
    sharding = {
        "strategy": "fsdp2",
        "mixed_precision": {"param_dtype": settings.dtype, "reduce_dtype": "fp32"},
        "use_torch_compile": False,
        **options.engine,
    }
    try:
        engine = FSDPEngineWithLMHead(
            HFModelConfig(**model),
            FSDPEngineConfig(**sharding),
            FSDPOptimizerConfig(clip_grad=settings.clip),
            CheckpointConfig(),
        )
    except (TypeError, AttributeError) as error:
        raise SettingError(f"verl refuses its options: {error}") from error
    engine.initialize()
    without_dropout(engine.module)
    return engine
