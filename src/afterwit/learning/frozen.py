"""Teacher and reference: the models that an update reads next to the policy. They do not train."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from afterwit.chat_format.render import require_same_tokenizer
from afterwit.errors import SettingError
from afterwit.learning.distributed.sharded import mesh_of, shard
from afterwit.learning.models import Masters, device_of, load_model
from afterwit.learning.score import fused_head
from afterwit.learning.settings import SERVER, LearnerSettings
from afterwit.teacher import TeacherServer
from afterwit.weights.lora import twin

if TYPE_CHECKING:
    from afterwit.learning.policy import Policy


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
        self._fusable = True
        for name, folder in settings.checkpoints.items():
            require_same_tokenizer(base, Path(folder), f"learner.{name}")

    def named(self, teacher: str) -> FrozenModels:
        """The same models with another teacher."""
        other = copy.copy(self)
        other._teacher = teacher
        return other

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
        return self._model(self._teacher, self._settings.teacher_device, policy)

    def reference(self, policy: Policy) -> PreTrainedModel:
        """The model that the KL term keeps the policy near."""
        return self._model(self._settings.reference, self._settings.reference_device, policy)

    def _model(self, name: str, device: str | None, policy: Policy) -> PreTrainedModel:
        if name == "base":
            return self.base(policy)
        if name == "live":
            return policy.model
        if name == "ema":
            if policy.ema is None:
                raise ValueError("the teacher is the policy's mean, but the policy has none")
            return policy.ema.model
        model = self.load(Path(name), device_of(device or self._settings.device))
        size, wanted = (len(each.get_output_embeddings().weight) for each in (model, policy.model))
        if size < wanted:
            raise SettingError(
                f"{name} knows {size} ids, but the model {wanted}: it cannot score all of them"
            )
        if size > wanted:  # models of one family are padded to different vocabularies
            model.resize_token_embeddings(wanted, mean_resizing=False)
        if model not in self._checkpoints:
            self._checkpoints.append(model)
            self._fusable &= self._settings.loss_backend == "plain" or fused_head(model) is not None
        return model

    def fusable(self) -> bool:
        """Whether the heads of all checkpoints in use can be fused with the loss."""
        return self._fusable

    def base(self, policy: Policy) -> PreTrainedModel:
        """The base: under an adapter the model without it, under full weights a second model."""
        if policy.base is not None:
            return policy.base
        return self.load(self._base, device_of(self._settings.device))

    def load(self, folder: Path, device: torch.device) -> PreTrainedModel:
        """The model in a folder, loaded once per device."""
        key = (folder.resolve(), device)
        if key not in self._loaded:
            mesh, dtype = mesh_of(self._settings), getattr(torch, self._settings.dtype)
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
