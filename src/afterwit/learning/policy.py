"""The policy as the learner holds it: model, master weights and optimiser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import AdamW
from transformers import PreTrainedModel

from afterwit.checkpoints.versions import Versions
from afterwit.errors import SettingError, VersionDamaged
from afterwit.fused_head.head import Head
from afterwit.learning.distributed.sharded import Sharded, mesh_of
from afterwit.learning.distributed.state_files import read_state
from afterwit.learning.frozen import Ema
from afterwit.learning.models import (
    MASTER,
    REMEDY,
    Adapter,
    FullWeights,
    Masters,
    adamw,
    moments,
    recompute_activations,
    restore_moments,
    without_prefix,
)
from afterwit.learning.score import fused_head, head_of
from afterwit.learning.settings import LearnerSettings
from afterwit.teacher import TeacherServer
from afterwit.weights.load import width_of
from afterwit.weights.lora import Lora, lora_of

MEAN = "ema."
REWARD_MEAN = "reward_mean"


Trained = FullWeights | Adapter | Sharded
"""The part of a model that trains: every weight, an adapter, or this process's shards of every weight."""


@dataclass(slots=True, kw_only=True)
class Policy:
    """The state that an update moves. `reward_mean` is the running mean of the RL baseline.

    `head` is the model's head, fused with the loss; None: the loss is computed from whole logits. `ema` is
    the teacher that follows the policy; None: the settings name another teacher.
    """

    trained: Trained
    head: Head | None
    ema: Ema | None
    optimizer: AdamW
    reward_mean: float
    number: int
    fresh_optimizer: bool = False
    """Whether the version's state was kept nowhere, so that the optimiser is a new one."""

    @classmethod
    def load(
        cls,
        versions: Versions,
        number: int,
        settings: LearnerSettings,
        *,
        verified: bool = False,
        base: PreTrainedModel | None = None,
    ) -> Policy:
        """The policy at a version. The optimiser is new if the version has no state of one (the base).

        `base` is the frozen base of an earlier policy with these settings, for an adapter: it is not loaded
        again.

        Raises what `require` does, unless it is `verified` already, and SettingError if the files cannot be
        loaded.
        """
        if not verified:
            cls.require(versions, number, settings)
        folder = versions.weights(number, state=True)
        trained: Trained
        fused = None
        if (mesh := mesh_of(settings)) is not None:
            trained, state, fused = Sharded.load(folder, settings, mesh)
        elif settings.lora_rank:
            trained, state = Adapter.load(folder, versions.base, settings, model=base), read_state(folder)
        else:
            state = read_state(folder)
            trained = FullWeights.load(folder, without_prefix(MASTER, state), settings)
        policy = cls.of(trained, state, versions.base, number, settings, fused=fused)
        policy.fresh_optimizer = not state and folder != versions.base
        return policy

    @classmethod
    def require(cls, versions: Versions, number: int, settings: LearnerSettings) -> None:
        """VersionDamaged if a file is not as it was written. SettingError if the weights are gone, or of
        another kind than the settings train."""
        folder = versions.weights(number, state=True)
        versions.verify(number)
        if folder == versions.base:
            return
        wanted = Lora(rank=settings.lora_rank, alpha=settings.lora_alpha) if settings.lora_rank else None
        try:
            there = lora_of(folder)
        except ValueError as error:
            raise VersionDamaged(f"{error}: {REMEDY}") from error
        if there != wanted:
            needed = "0" if there is None else f"{there.rank} and learner.lora_alpha = {there.alpha:g}"
            raise SettingError(
                f"version {number} holds {_kind(there)}, but the settings train {_kind(wanted)}: set "
                f"learner.lora_rank = {needed} to learn on from it (in config.toml, or the file that --config"
                " names), or start over with `afterwit rollback 0`"
            )

    @classmethod
    def of(
        cls,
        trained: Trained,
        state: dict[str, Tensor],
        base: Path,
        number: int,
        settings: LearnerSettings,
        *,
        fused: bool | None = None,
    ) -> Policy:
        """A policy of weights in memory and the state that an earlier one had.

        `fused`: whether the model's head may be fused with the loss; None: that is tested.
        """
        ema = None
        if settings.keeps_mean:
            kept = without_prefix(MEAN, state)
            start = {name: tensor.to(trained.masters.named[name]) for name, tensor in kept.items()}
            ema = Ema(trained.model, start or trained.initial_masters(base), settings.ema_decay)
        if settings.checkpointing:
            recompute_activations(trained.model)
        head = head_of(trained.model) if fused else None
        if fused is None and settings.loss_backend == "fused":
            head = fused_head(trained.model)
        optimizer = adamw(trained.masters, settings.settled(width_of(trained.model.config)))
        restore_moments(optimizer, trained.masters, state)
        return cls(
            trained=trained,
            head=head,
            ema=ema,
            optimizer=optimizer,
            reward_mean=float(state.get(REWARD_MEAN, torch.tensor(0.0))),
            number=number,
        )

    @property
    def model(self) -> PreTrainedModel:
        return self.trained.model

    @property
    def base(self) -> PreTrainedModel | None:
        """The frozen base, if the policy shares it."""
        return self.trained.base

    @property
    def masters(self) -> Masters:
        return self.trained.masters

    @property
    def width(self) -> int:
        """Of the model's hidden states."""
        return width_of(self.model.config)

    def context(self, settings: LearnerSettings, served: TeacherServer | None) -> int:
        """Most tokens of prompt and response: the least of the setting and of either model's context."""
        own = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        most = min(settings.max_tokens, own or settings.max_tokens)
        return most if served is None else min(most, served.context_length)

    def whole_head(self) -> Head:
        """The head with its weight whole; of weights in shards, after a forward pass.

        ValueError if it cannot be fused.
        """
        if self.head is None:
            raise ValueError("the policy has no head that can be fused")
        return head_of(self.model) if isinstance(self.trained, Sharded) else self.head

    def state(self) -> dict[str, Tensor]:
        """Optimiser, master weights and running means, which the next update needs next to the weights."""
        tensors = moments(self.optimizer, self.masters)
        if self.masters.separate or isinstance(self.trained, Sharded):
            tensors |= {MASTER + name: parameter.detach() for name, parameter in self.masters.named.items()}
        if self.ema is not None:
            tensors |= {MEAN + name: mean for name, mean in self.ema.named.items()}
        tensors[REWARD_MEAN] = torch.tensor(self.reward_mean, dtype=torch.float64)
        return tensors


def _kind(lora: Lora | None) -> str:
    return "full weights" if lora is None else f"an adapter of rank {lora.rank} and alpha {lora.alpha:g}"
