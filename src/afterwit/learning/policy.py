"""The models of an update: the policy with its master weights and optimiser, teacher and reference.

Teacher and reference are read next to the policy and do not train.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW
from transformers import PreTrainedModel

from afterwit.chat_format.render import require_same_tokenizer
from afterwit.checkpoints.manifest import STATE
from afterwit.checkpoints.versions import Versions
from afterwit.engines.port import TeacherServer
from afterwit.errors import SettingError, VersionDamaged
from afterwit.fused_head.head import Head, head_of
from afterwit.learning.distributed.sharded import Sharded, mesh_of, read_state, shard
from afterwit.learning.models import (
    MASTER,
    REMEDY,
    Adapter,
    FullWeights,
    Masters,
    adamw,
    device_of,
    load_model,
    moments,
    recompute_activations,
    restore_moments,
    version_tensors,
    without_prefix,
)
from afterwit.learning.passes import Phase, Progress, fused_head
from afterwit.learning.settings import SERVER, LearnerSettings
from afterwit.weights.adapter import Lora, lora_of
from afterwit.weights.weights import twin


class FrozenModels:
    """Each model is loaded at its first use and kept. It runs in the policy's kernels."""

    def __init__(self, base: Path, settings: LearnerSettings, *, server: TeacherServer | None = None) -> None:
        """`base` is the folder that the policy began at; `server` holds the teacher if the settings say so.

        SettingError if teacher or reference have another tokenizer.
        """
        self._base = base
        self._settings = settings
        self._teacher = settings.teacher
        self._server = server
        self._loaded: dict[tuple[Path, torch.device], PreTrainedModel] = {}
        self._checkpoints: list[PreTrainedModel] = []
        self.fusable = True
        """Whether the heads of all checkpoints in use can be fused with the loss."""
        for name, folder in settings.checkpoints.items():
            require_same_tokenizer(base, Path(folder), f"learner.{name}")

    def named(self, teacher: str) -> FrozenModels:
        other = copy.copy(self)
        other._teacher = teacher
        return other

    def under(self, settings: LearnerSettings) -> FrozenModels:
        """These models, or others if an update under these settings reads others."""
        if settings.alike(self._settings):
            return self
        return FrozenModels(self._base, settings, server=self._server)

    @property
    def served(self) -> TeacherServer | None:
        """The server that scores hints; None: the teacher is a model here. ValueError if it was not given."""
        if self._teacher != SERVER:
            return None
        if self._server is None:
            raise ValueError("the teacher is on a server, but none was given")
        return self._server

    def teacher(self, policy: Policy) -> PreTrainedModel:
        """The model that reads the hints, unless it is `served`."""
        return self._model(self._teacher, "teacher_device", policy)

    def reference(self, policy: Policy) -> PreTrainedModel:
        """The model that the KL term keeps the policy near."""
        return self._model(self._settings.reference, "reference_device", policy)

    def _model(self, name: str, setting: str, policy: Policy) -> PreTrainedModel:
        """The model of this name; a checkpoint is on the device that `setting` names, or the policy's."""
        if name == "base":
            return self.base(policy)
        if name == "live":
            return policy.model
        if name == "ema":
            if policy.ema is None:
                raise ValueError("the teacher is the policy's mean, but the policy has none")
            return policy.ema.model
        own = getattr(self._settings, setting)
        device = device_of(self._settings.device) if own is None else device_of(own, f"learner.{setting}")
        model = self.load(Path(name), device)
        size, wanted = (len(each.get_output_embeddings().weight) for each in (model, policy.model))
        if size < wanted:
            raise SettingError(
                f"{name} has {size} ids, but the model has {wanted}: it cannot score all of them"
            )
        if size > wanted:  # models of one family are padded to different vocabularies
            model.resize_token_embeddings(wanted, mean_resizing=False)
        if model not in self._checkpoints:
            self._checkpoints.append(model)
            self.fusable &= self._settings.loss_backend == "plain" or fused_head(model) is not None
        return model

    def base(self, policy: Policy) -> PreTrainedModel:
        """The base: under an adapter the model without it, under full weights a second model."""
        if policy.base is not None:
            return policy.base
        return self.load(self._base, device_of(self._settings.device))

    def load(self, folder: Path, device: torch.device) -> PreTrainedModel:
        """The model in a folder, loaded once per device."""
        key = (folder.resolve(), device)
        if key not in self._loaded:
            mesh = mesh_of(self._settings) if self._settings.shards > 1 else None
            dtype = getattr(torch, self._settings.dtype)
            place = device if mesh is None else torch.device("cpu")
            self._loaded[key] = load_model(folder, dtype=dtype, device=place).requires_grad_(False)
            if mesh is not None:
                shard(self._loaded[key], mesh)
        return self._loaded[key]


class Ema:
    """`model` is the policy with the mean of its weights. It shares what does not train.

    The mean is kept at the masters' precision; `model` holds it at the policy's. Under an adapter it is the
    mean of each factor. The product of the means is near the mean of the products, but not equal to it.
    """

    def __init__(self, policy: PreTrainedModel, start: Mapping[str, Tensor], decay: float) -> None:
        """`start` is the mean so far, by parameter. It is not copied."""
        self.named = dict(start)
        self._decay = decay
        own = dict(policy.named_parameters())
        self._rounded = {
            name: nn.Parameter(mean.to(own[name].dtype), requires_grad=False)
            for name, mean in self.named.items()
        }
        self.model = twin(policy, self._rounded)

    @torch.no_grad()
    def follow(self, masters: Masters) -> None:
        """After an update: mean = decay * mean + (1 - decay) * policy."""
        for name, mean in self.named.items():
            mean.mul_(self._decay).add_(masters.named[name], alpha=1 - self._decay)
            self._rounded[name].copy_(mean)


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
        """The policy at a version. The optimiser is new if the version keeps no state (the base).

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
        if settings.shards > 1 and (mesh := mesh_of(settings)) is not None:
            trained, state, fused = Sharded.load(folder, settings, mesh)
        elif settings.lora_rank:
            trained, state = Adapter.load(folder, versions.base, settings, model=base), _state(folder)
        else:
            state = _state(folder)
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
                f"learner.lora_rank = {needed} to continue from it (in config.toml, or the file that --config"
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
        elif settings.checkpointing is None and trained.model.supports_gradient_checkpointing:
            recompute_activations(trained.model, above=settings.pass_tokens)
        head = head_of(trained.model) if fused else None
        if fused is None and settings.loss_backend == "fused":
            head = fused_head(trained.model)
        optimizer = adamw(trained.masters, settings)
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

    @property
    def size(self) -> int:
        """About the bytes of a version's files: the weights in fp32, which is the most, and the state."""
        return sum(each.nbytes for each in (*self.masters.named.values(), *self.state().values()))

    def state(self) -> dict[str, Tensor]:
        """Optimiser, master weights and running means, which the next update needs next to the weights."""
        tensors = moments(self.optimizer, self.masters)
        if self.masters.separate or isinstance(self.trained, Sharded):
            tensors |= {MASTER + name: parameter.detach() for name, parameter in self.masters.named.items()}
        if self.ema is not None:
            tensors |= {MEAN + name: mean for name, mean in self.ema.named.items()}
        tensors[REWARD_MEAN] = torch.tensor(self.reward_mean, dtype=torch.float64)
        return tensors

    def write(self, folder: Path, base: Path, progress: Progress) -> None:
        """Write the weights, which this process holds whole, into a version's folder, then the state."""
        self.trained.write(folder, base)
        progress(Phase.WRITING)
        state = {name: tensor.contiguous() for name, tensor in self.state().items()}
        save_file(state, folder / STATE)


def _state(folder: Path) -> dict[str, Tensor]:
    """The learner's state in a folder, which other processes may have written in shards; {} without one."""
    return version_tensors(folder / STATE) if (folder / STATE).exists() else read_state(folder)


def _kind(lora: Lora | None) -> str:
    return "full weights" if lora is None else f"an adapter of rank {lora.rank} and alpha {lora.alpha:g}"
