"""The models that an update reads beside the policy: teacher and reference. They do not train."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from transformers import PreTrainedModel

from afterwit.core.errors import SettingError
from afterwit.core.teacher import TeacherServer
from afterwit.learner.parameters.ema import Ema
from afterwit.learner.parameters.load import device_of, load_model
from afterwit.learner.parameters.mesh import mesh_of, shard
from afterwit.learner.scoring import fused_head
from afterwit.learner.settings import SERVER, LearnerSettings
from afterwit.wire.model_text.same_tokenizer import require_same_tokenizer


class Base(Protocol):
    @property
    def base(self) -> PreTrainedModel | None:
        """The frozen base, if the policy shares it."""


class HasTeachers(Protocol):
    """The parts of the policy that a teacher may share."""

    @property
    def model(self) -> PreTrainedModel: ...

    @property
    def trained(self) -> Base: ...

    @property
    def ema(self) -> Ema | None: ...


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

    def teacher(self, policy: HasTeachers) -> PreTrainedModel:
        """The model that reads the hints, unless it is `served`."""
        return self._model(self._teacher, self._settings.teacher_device, policy)

    def reference(self, policy: HasTeachers) -> PreTrainedModel:
        """The model that the KL term keeps the policy near."""
        return self._model(self._settings.reference, self._settings.reference_device, policy)

    def _model(self, name: str, device: str | None, policy: HasTeachers) -> PreTrainedModel:
        if name in TEACHERS:
            return TEACHERS[name](self, policy)
        model = self.load(Path(name), device_of(device or self._settings.device))
        _fit_vocabulary(model, policy.model, name)
        if model not in self._checkpoints:
            self._checkpoints.append(model)
            self._fusable &= self._settings.head == "plain" or fused_head(model) is not None
        return model

    def fusable(self) -> bool:
        """Whether the heads of all checkpoints in use can be fused with the loss."""
        return self._fusable

    def base(self, policy: HasTeachers) -> PreTrainedModel:
        """The base: under an adapter the model without it, under full weights a second model."""
        if policy.trained.base is not None:
            return policy.trained.base
        return self.load(self._base, device_of(self._settings.device))

    def load(self, folder: Path, device: torch.device) -> PreTrainedModel:
        """The model in a folder, loaded once per device."""
        key = (folder.resolve(), device)
        if key not in self._loaded:
            dtype = getattr(torch, self._settings.dtype)
            mesh = mesh_of(self._settings)
            place = device if mesh is None else torch.device("cpu")
            model = load_model(folder, dtype=dtype, device=place).requires_grad_(False)
            if mesh is not None:
                shard(model, mesh)
            self._loaded[key] = model
        return self._loaded[key]


def _base(frozen: FrozenModels, policy: HasTeachers) -> PreTrainedModel:
    return frozen.base(policy)


def _live(frozen: FrozenModels, policy: HasTeachers) -> PreTrainedModel:
    return policy.model


def _ema(frozen: FrozenModels, policy: HasTeachers) -> PreTrainedModel:
    if policy.ema is None:
        raise ValueError("the teacher is the policy's mean, but the policy has none")
    return policy.ema.model


TEACHERS: dict[str, Callable[[FrozenModels, HasTeachers], PreTrainedModel]] = {
    "base": _base,
    "live": _live,
    "ema": _ema,
}
"""By the value of `teacher` or `reference`. Any other value is the folder of a checkpoint."""


def _fit_vocabulary(model: PreTrainedModel, policy: PreTrainedModel, name: str) -> None:
    """Cut off the rows that only pad the vocabulary: models of one family are padded differently."""
    size, wanted = (len(each.get_output_embeddings().weight) for each in (model, policy))
    if size < wanted:
        raise SettingError(f"{name} knows {size} ids, but the model {wanted}: it cannot score all of them")
    if size > wanted:
        model.resize_token_embeddings(wanted, mean_resizing=False)
