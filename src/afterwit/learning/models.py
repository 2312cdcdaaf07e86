"""The models of one process: loaded as in evaluation, trained whole or by an adapter (LoRA), and written.

Below them are the masters, which are the parameters that train, and AdamW over these.
"""

from __future__ import annotations

import copy
import math
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW
from transformers import PreTrainedModel

from afterwit.errors import SettingError, VersionDamaged
from afterwit.learning.passes import probe
from afterwit.learning.settings import LearnerSettings, threads_for
from afterwit.version import Probe
from afterwit.weights.adapter import TENSORS
from afterwit.weights.weights import load_causal_lm, twin

REMEDY = "`afterwit rollback` returns to a version before it"

CONFIGURATION_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
SHARD_SIZE = "10TB"

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
MASTER = "master."
"""Prefix of a master weight in the state."""

LORA_SEED = 0
"""Seed of the factor A: every adapter of a model starts from the same values."""
MODEL_FILES = ("config.json", "generation_config.json")
"""Files that make a folder a model. A version that is an adapter does not get them."""
HUB_PREFIX = "models--"
"""How a model's folder begins in the hub's cache: models--owner--name/snapshots/revision."""


def idle_threads(processes: int = 1) -> int:
    """The default number of torch's threads in each of this many processes of one machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return threads_for(usable, load=os.getloadavg()[0], processes=processes)


def use_threads(threads: int) -> None:
    """Set torch's threads; 0: the default, or what `OMP_NUM_THREADS` sets."""
    if threads or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads or idle_threads())


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The folder's causal language model in `dtype`. SettingError if transformers cannot load it."""
    model = load_causal_lm(folder, dtype)
    without_dropout(model)
    return model.to(device).eval()


def version_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a version's file, by name. VersionDamaged if it cannot be read."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise VersionDamaged(f"{path} cannot be read ({error}): {REMEDY}") from error
    return tensors


def recompute_activations(model: PreTrainedModel, *, above: int = 0) -> None:
    """Save the memory of activations in passes of more tokens than this by a second forward pass.

    Values and gradients stay the same.
    """
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # its later versions rename both
        if model.is_gradient_checkpointing:  # a base that several adapters share
            return
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    layers = [name for name, each in model.named_modules() if getattr(each, "gradient_checkpointing", False)]

    def choose(module: nn.Module, _: Any, given: Mapping[str, Any]) -> None:
        """Put a layer in training mode, so that it recomputes, but not its parts: experts may draw noise."""
        recomputes = torch.is_grad_enabled() and given["input_ids"].numel() > above
        for name in layers:
            module.get_submodule(name).training = recomputes

    model.register_forward_pre_hook(choose, with_kwargs=True)


def device_of(name: str, setting: str = "learner.device") -> torch.device:
    """The device that a setting names; `auto` is CUDA if there is one. SettingError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingError(
            f"{setting} is {name!r}, which torch does not know: try auto, cpu or cuda"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(f"{setting} is {name}, but torch sees no CUDA device here: set it to auto or cpu")
    return device


def without_dropout(model: nn.Module) -> None:
    """Make the model compute in training as in evaluation."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in [name for name, value in vars(module).items() if isinstance(value, float)]:
            if "dropout" in name:
                setattr(module, name, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullWeights:
    """All weights train, and a version is an ordinary Hugging Face folder."""

    model: PreTrainedModel
    masters: Masters
    base: None = None

    @classmethod
    def load(cls, folder: Path, precise: Mapping[str, Tensor], settings: LearnerSettings) -> Self:
        """The model in a folder. `precise`: the values its weights were rounded from, if kept."""
        rounds = settings.dtype == "bfloat16"
        model = load_model(folder, dtype=getattr(torch, settings.dtype), device=device_of(settings.device))
        if precise and not rounds:
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(precise[name])
        return cls(model=model, masters=Masters(model, (precise or _precise(folder)) if rounds else None))

    def initial_masters(self, base: Path) -> dict[str, Tensor]:
        """The master weights at the base, as a copy for the caller."""
        return {name: tensor.to(self.masters.named[name]) for name, tensor in _precise(base).items()}

    def write(self, folder: Path, base: Path) -> None:
        self.model.save_pretrained(folder, max_shard_size=SHARD_SIZE)
        copy_configuration(folder, base)


def probe_of(folder: Path, dtype: str) -> Probe:
    """The log-probs expected of an engine with a folder's weights, which are loaded into CPU memory."""
    return probe(load_model(folder, dtype=getattr(torch, dtype), device=torch.device("cpu")))


def copy_configuration(folder: Path, base: Path, *, without: tuple[str, ...] = ()) -> None:
    for pattern in CONFIGURATION_FILES:
        for path in base.glob(pattern):
            if not path.name.endswith(".index.json") and path.name not in without:
                shutil.copyfile(path, folder / path.name)


def _precise(folder: Path) -> dict[str, Tensor]:
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Only the factors of an adapter train, over a frozen base that is in memory once.

    `base` shares the tensors of `model`, without the adapter.
    """

    base: PreTrainedModel
    peft: Any
    """A `peft.PeftModel`."""
    masters: Masters

    @classmethod
    def load(
        cls, folder: Path, base: Path, settings: LearnerSettings, *, model: PreTrainedModel | None = None
    ) -> Self:
        """The adapter in a version's folder; a fresh one if the folder is the base's. `model` is the base, if
        it is in memory already.

        VersionDamaged if it cannot be read or belongs to another model.
        """
        if model is None:
            dtype, device = getattr(torch, settings.dtype), device_of(settings.device)
            model = load_model(base, dtype=dtype, device=device)
        made = cls.fresh(model, settings)
        if folder != base:
            made._restore(folder / TENSORS)
        return made

    @classmethod
    def fresh(cls, base: PreTrainedModel, settings: LearnerSettings) -> Self:
        """An adapter on all linear layers except the head, in fp32 (fp64 on an fp64 model).

        B is 0, so the adapted model equals the base exactly. A is drawn as PEFT draws it, from a fixed seed.
        """
        peft = _adapted(twin(base, {}), settings.lora_rank, settings.lora_alpha)
        return cls(base=base, peft=peft, masters=Masters(peft.get_base_model()))

    @property
    def model(self) -> PreTrainedModel:
        return self.peft.get_base_model()

    def initial_masters(self, base: Path) -> dict[str, Tensor]:
        """The master weights at the base, as a copy for the caller."""
        generator = torch.Generator().manual_seed(LORA_SEED)
        return {
            name: _drawn(own, generator).to(own) if ".lora_A." in name else torch.zeros_like(own)
            for name, own in self.masters.named.items()
        }

    def write(self, folder: Path, base: Path) -> None:
        """Write what `peft.PeftModel.from_pretrained(model, folder)` reads. Equal values make equal bytes.

        The base is named by its hub id or its folder's name, without a path, so that a home can be moved.
        """
        config = copy.copy(self.peft.peft_config["default"])
        config.target_modules = sorted({name.rpartition(".")[2] for name in self.peft.targeted_module_names})
        config.base_model_name_or_path = name_of(base)
        config.inference_mode = True
        config.save_pretrained(folder)
        tensors = {name: tensor.contiguous() for name, tensor in self._tensors().items()}
        save_file(tensors, folder / TENSORS, metadata={"format": "pt"})
        copy_configuration(folder, base, without=MODEL_FILES)

    def _tensors(self) -> dict[str, Tensor]:
        from peft import get_peft_model_state_dict

        found: dict[str, Tensor] = get_peft_model_state_dict(self.peft, save_embedding_layers=False)
        return found

    @torch.no_grad()
    def _restore(self, path: Path) -> None:
        own, read = self._tensors(), version_tensors(path)
        shapes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in (own, read)]
        if wrong := {name for name, _ in shapes[0].items() ^ shapes[1].items()}:
            raise VersionDamaged(f"{path} is not an adapter of this model: {min(wrong)} differs; {REMEDY}")
        for name, tensor in own.items():
            tensor.copy_(read[name])


def _adapted(model: PreTrainedModel, rank: int, alpha: float) -> Any:
    """A `peft.PeftModel` of the model, which is changed in place."""
    from peft import LoraConfig, get_peft_model  # importing takes seconds, and full weights do not need it

    config = LoraConfig(
        task_type="CAUSAL_LM",
        target_modules="all-linear",
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # PEFT only divides by it
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name it has dropped
        adapted = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(LORA_SEED)
    for name, parameter in adapted.named_parameters():
        if ".lora_A." in name:
            parameter.data.copy_(_drawn(parameter, generator))
    return adapted


def _drawn(factor: Tensor, generator: torch.Generator) -> Tensor:
    return torch.nn.init.kaiming_uniform_(torch.empty(factor.shape), a=math.sqrt(5), generator=generator)


def name_of(base: Path) -> str:
    """The hub id of a folder in the hub's cache, else the folder's name."""
    whole = base.resolve()
    kept = next((part for part in whole.parts if part.startswith(HUB_PREFIX)), None)
    return whole.name if kept is None else kept.removeprefix(HUB_PREFIX).replace("--", "/")


class Masters:
    """The model's parameters that train, by name, at the optimiser's precision.

    A rounded parameter adds each gradient to its master as soon as it is complete, so that micro-batches add
    up in fp32. `publish` copies the masters back into the model.
    """

    def __init__(self, model: nn.Module, precise: Mapping[str, Tensor] | None = None) -> None:
        """`precise` are the masters' values; None: the model's own parameters are the masters."""
        self._model = {name: own for name, own in model.named_parameters() if own.requires_grad}
        self.separate = precise is not None
        self.named: dict[str, nn.Parameter] = self._model
        if precise is not None:
            self.named = {
                name: nn.Parameter(precise[name].to(own.device)) for name, own in self._model.items()
            }
            for name, own in self._model.items():
                hook = _hand_over(self.named[name])
                own.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def gradient(self, own: Tensor | None) -> Tensor | None:
        """The tensor in which a parameter's gradient adds up; None if the parameter is frozen."""
        name = next((name for name, parameter in self._model.items() if parameter is own), None)
        if own is None or name is None or not own.requires_grad:
            return None
        master = self.named[name]
        if master.grad is None:
            master.grad = torch.zeros_like(master)
        return master.grad

    def clear(self) -> None:
        for parameter in self.named.values():
            parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the model."""
        if self.separate:
            for name, own in self._model.items():
                own.copy_(self.named[name])


def _hand_over(master: nn.Parameter) -> Callable[[Tensor], None]:
    def hook(own: Tensor) -> None:
        if own.grad is None:
            raise ValueError("a parameter's gradient is missing after it was computed")
        gradient = own.grad.to(master.dtype)
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
        own.grad = None

    return hook


LEAST_EPS = 1e-8
"""AdamW's epsilon as published."""


def adamw(masters: Masters, settings: LearnerSettings) -> AdamW:
    """AdamW; each update sets its step size. Weight decay applies to matrices, not to norms and biases.

    On a CPU the step reads and writes memory once (an eighth of the time); on a GPU torch chooses.
    """
    matrices = [parameter for parameter in masters.named.values() if parameter.dim() > 1]
    vectors = [parameter for parameter in masters.named.values() if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    weights = sum(parameter.numel() for parameter in masters.named.values())
    eps = max(LEAST_EPS, settings.adam_eps / math.sqrt(weights))
    once = all(parameter.device.type == "cpu" for parameter in masters.named.values()) or None
    trained = [group for group in groups if group["params"]]
    return AdamW(trained, betas=betas, eps=eps, fused=once)


def moments(optimizer: AdamW, masters: Masters) -> dict[str, Tensor]:
    """`<moment>.<parameter>` -> tensor; empty before the first step."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in masters.named.items()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


def restore_moments(optimizer: AdamW, masters: Masters, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `moments`; exact if the masters had the same precision."""
    for name, parameter in masters.named.items():
        if f"step.{name}" not in tensors:
            continue
        kept = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS}
        optimizer.state[parameter] = {
            moment: tensor if moment == "step" else tensor.to(parameter) for moment, tensor in kept.items()
        }


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def clip_gradients(masters: Masters, most: float) -> float:
    """Scale all gradients down to a global 2-norm of `most`; returns what it was, in all processes."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in masters.named.values() if p.grad is not None])
    torch.nn.utils.clip_grads_with_norm_(masters.named.values(), most, norm)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
