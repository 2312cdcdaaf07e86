"""Weights in memory: a model folder loaded through transformers, and LoRA adapters put on it.

Python code in a folder never runs. Weights are copied into memory, never mapped from a file: writing to the
file while it is served would change the answers of a version, or end the process.

Adapters are in PEFT's own format: (W + (alpha / r) B A) x, Hu et al. 2021, arXiv:2106.09685, section 4.1.
Axes: B rows of a batch, N tokens, R the rank, I and O a layer's inputs and outputs.
"""

from __future__ import annotations

import copy
import ctypes
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from afterwit.errors import SettingError
from afterwit.weights.adapter import PREFIX, TENSORS

M = TypeVar("M", bound=nn.Module)

KINDS_OF_MISFIT = ("missing", "unexpected", "mismatched")
HALVES = (torch.bfloat16, torch.float16)


def read_config(folder: Path) -> PreTrainedConfig:
    """The folder's configuration. SettingError if transformers cannot read it by itself."""
    path = folder / "config.json"
    if not path.is_file():
        raise SettingError(f"{folder} has no config.json: the model must be a Hugging Face folder.")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, OSError, KeyError) as error:
        raise SettingError(own_code(folder) or f"transformers cannot read {path}: {error}") from error


def load_causal_lm(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The folder's causal language model on the CPU. SettingError if it cannot be loaded whole."""
    logging.disable_progress_bar()
    config = read_config(folder)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below
        )
    except UnpicklingError as error:
        raise SettingError(
            f"transformers cannot load {folder}: its weights are a pickle of more than tensors, which is "
            "not run; take them as *.safetensors"
        ) from error
    except SafetensorError as error:
        raise SettingError(f"The weights in {folder} are cut short ({error}): download it again") from error
    except (ValueError, OSError, KeyError, RuntimeError) as error:
        raise SettingError(own_code(folder) or f"transformers cannot load {folder}: {error}") from error
    misfits = {kind: sorted(map(str, report[f"{kind}_keys"]))[:3] for kind in KINDS_OF_MISFIT}
    if wrong := "; ".join(f"{kind}: {names}" for kind, names in misfits.items() if names):
        raise SettingError(
            f"The weights in {folder} are not those of its config.json ({wrong}): download it again"
        )
    loaded: PreTrainedModel = model
    for tensor in (*loaded.parameters(), *loaded.buffers()):
        if not tensor.untyped_storage().resizable():  # mapped from the file
            tensor.data = tensor.data.clone()
    return loaded


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, by name. Raises SafetensorError and OSError."""
    found: dict[str, Tensor] = load(path.read_bytes())
    return found


def return_freed() -> None:
    """Return freed memory to the system, and to the engine on the same GPU.

    Tensors of many sizes leave holes, which glibc would keep; torch keeps all that it took of a GPU.
    """
    torch.cuda.empty_cache()  # nothing, unless this process uses CUDA
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def own_code(folder: Path) -> str | None:
    """A sentence if the folder's model needs Python code of its own; else None."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict) or not config.get("auto_map"):
        return None
    return (
        f"the model in {folder} needs Python code of its own (auto_map in config.json), which Afterwit does "
        "not run: take a model that transformers knows by itself (Qwen3, Llama, Qwen2, SmolLM, ...)"
    )


class Pair(NamedTuple):
    a_RI: Tensor
    b_OR: Tensor


def pairs_of(folder: Path) -> dict[str, Pair]:
    """The factors by module. ValueError if one is missing or belongs to no module."""
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in read_tensors(folder / TENSORS).items()}
    modules = sorted({name.rpartition(".lora_")[0] for name in tensors})
    try:
        pairs = {
            name: Pair(tensors.pop(f"{name}.lora_A.weight"), tensors.pop(f"{name}.lora_B.weight"))
            for name in modules
        }
    except KeyError as error:
        raise ValueError(f"{folder / TENSORS} has no {error}") from error
    if tensors:
        raise ValueError(f"{folder / TENSORS} has {sorted(tensors)[:3]}, which are not factors of a layer")
    return pairs


def adapted(model: M, pairs: Mapping[str, Pair], scale: float) -> M:
    """A model with the adapter on it. `model` stays as it is, and all weights that can be shared are shared.

    In fp32 the adapter is merged into the weights, so it costs nothing to run. In half precision it stays
    unmerged, as in training: merged weights would be rounded differently, and the log-probs would not be the
    learner's. ValueError if it does not fit.
    """
    if next(model.parameters()).dtype in HALVES:
        return unmerged(model, pairs, scale)
    return twin(model, merged(model, pairs, scale))


@torch.no_grad()
def merged(model: nn.Module, pairs: Mapping[str, Pair], scale: float) -> dict[str, nn.Parameter]:
    """New values of the weights that the adapter changes, by name, summed in fp32 or better."""
    found = {}
    for name, (layer, pair) in fitting(model, pairs).items():
        weight: Tensor = layer.weight
        exact = torch.promote_types(weight.dtype, torch.float32)
        a_RI, b_OR = (factor.to(weight.device, exact) for factor in pair)
        delta_OI = scale * (b_OR @ a_RI)
        moved = weight.to(exact) + (delta_OI.t() if isinstance(layer, Conv1D) else delta_OI)
        found[f"{name}.weight"] = nn.Parameter(moved.to(weight.dtype), requires_grad=False)
    return found


def unmerged(model: M, pairs: Mapping[str, Pair], scale: float) -> M:
    """A model with all the weights of `model`, whose adapted layers add scale * B A x to their output."""
    other = twin(model, {})
    layers = dict(other.named_modules())
    for name, pair in _scaled(other, pairs, scale).items():
        layers[name].register_forward_hook(partial(_add, pair))
    return other


def _scaled(model: nn.Module, pairs: Mapping[str, Pair], scale: float) -> dict[str, Pair]:
    """The factors on their layers' devices; B holds the scale. ValueError if they do not fit the model."""
    return {
        name: Pair(a_RI.to(layer.weight.device), scale * b_OR.to(layer.weight.device))
        for name, (layer, (a_RI, b_OR)) in fitting(model, pairs).items()
    }


def _add(pair: Pair, layer: nn.Module, inputs: tuple[Tensor, ...], out_NO: Tensor) -> Tensor:
    """A layer's forward hook."""
    return _added(inputs[0], out_NO, pair)


def _added(in_NI: Tensor, out_NO: Tensor, pair: Pair) -> Tensor:
    """Product and sum are computed in the factors' precision."""
    narrow_NR = functional.linear(in_NI.to(pair.a_RI.dtype), pair.a_RI)
    return (out_NO + functional.linear(narrow_NR, pair.b_OR)).to(out_NO.dtype)


def fitting(model: nn.Module, pairs: Mapping[str, Pair]) -> dict[str, tuple[nn.Linear | Conv1D, Pair]]:
    """Each adapted layer with its pair. ValueError if the layer is missing or has another shape."""
    modules, found = dict(model.named_modules()), {}
    for name, pair in pairs.items():
        if not isinstance(layer := modules.get(name), nn.Linear | Conv1D):
            raise ValueError(f"the model has no linear layer {name}")
        shape = tuple(layer.weight.t().shape if isinstance(layer, Conv1D) else layer.weight.shape)
        (rank, inputs), (outputs, width) = pair.a_RI.shape, pair.b_OR.shape
        if (outputs, inputs) != shape or rank != width:
            raise ValueError(f"{name} is {shape}, but its adapter {(outputs, width)} times {(rank, inputs)}")
        found[name] = (layer, pair)
    return found


def twin(model: M, values: Mapping[str, nn.Parameter]) -> M:
    """A model of the same modules with the parameters `values`, by name; all others are those of `model`.

    Buffers are copied. Tied parameters stay tied. Raises KeyError for a name that the model does not have,
    ValueError for another shape.
    """
    named = dict(model.named_parameters())
    for name, value in values.items():
        if value.shape != named[name].shape:
            raise ValueError(f"{name} is {tuple(named[name].shape)}, but its value {tuple(value.shape)}")
    kept = {id(own): values.get(name, own) for name, own in named.items()}
    return copy.deepcopy(model, kept)  # deepcopy takes what is in its memo for the copy


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """An adapter's factors by layer, on the model's device; B holds the scale."""

    pairs: Mapping[str, Pair]

    @property
    def device(self) -> torch.device:
        return next(iter(self.pairs.values())).a_RI.device

    def times(self, factor: float) -> Factors:
        return Factors({name: Pair(pair.a_RI, factor * pair.b_OR) for name, pair in self.pairs.items()})


class RowAdapters:
    """Several adapters over one model at once: each row of a batch is computed with its own.

    `module` shares the weights of the model, which stays as it is. Within `rows` its layers add adapters.
    Each thread has its own rows, so that one may score while another decodes.
    """

    def __init__(self, model: Any) -> None:
        self.module: Any = twin(model, {})
        self._here = threading.local()
        for name, layer in self.module.named_modules():
            if isinstance(layer, nn.Linear | Conv1D):
                layer.register_forward_hook(partial(self._add, name))

    def fitted(self, pairs: Mapping[str, Pair], scale: float) -> Factors:
        """An adapter made ready. ValueError if it does not fit the model."""
        return Factors(_scaled(self.module, pairs, scale))

    @contextmanager
    def rows(self, adapters: Sequence[Factors | None]) -> Iterator[None]:
        """Within the body, row i of a batch is computed with adapters[i]; None: with the model alone."""
        places: dict[Factors, list[int]] = {}
        for place, factors in enumerate(adapters):
            if factors is not None:
                places.setdefault(factors, []).append(place)
        size = self._here.size = len(adapters)
        self._here.groups = [
            (each, None if len(rows) == size else torch.tensor(rows, device=each.device))
            for each, rows in places.items()
        ]
        try:
            yield
        finally:
            self._here.groups = ()

    def _add(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...], out_NO: Tensor) -> Tensor:
        """A layer's forward hook: adds each adapter to its rows of the batch, or to all (None)."""
        for factors, rows_B in getattr(self._here, "groups", ()):
            if (pair := factors.pairs.get(name)) is None:
                continue
            if rows_B is None:
                out_NO = _added(inputs[0], out_NO, pair)
                continue
            if len(inputs[0]) != self._here.size:
                raise ValueError(f"{name} was given {len(inputs[0])} rows of {self._here.size}")
            out_NO[rows_B] = _added(inputs[0][rows_B], out_NO[rows_B], pair)
        return out_NO


def widened(model: M) -> M:
    """A model with the same weights, in half precision, that computes in float32, and returns it.

    One block at a time has its weights widened, so that this costs the memory of a block and not of a model.
    A model in any other precision, or whose weights are in shards, is returned itself.
    """
    weights = list(model.parameters())
    if not all(type(weight.data) is Tensor for weight in weights) or not _halves(model):
        return model
    wide = twin(model, {})
    for block in _blocks(wide):
        if _halves(block):
            _widen_while_it_runs(block)
    return wide


def _halves(module: nn.Module) -> bool:
    return any(tensor.dtype in HALVES for tensor in (*module.parameters(), *module.buffers()))


def _widen_while_it_runs(block: nn.Module) -> None:
    narrow_ones: list[tuple[dict[str, Any], str, Any]] = []

    def widen(block: nn.Module, inputs: Any) -> None:
        for module in block.modules():
            kinds: tuple[dict[str, Any], dict[str, Any]] = (module._parameters, module._buffers)
            for named in kinds:
                for name, tensor in named.items():
                    if tensor is not None and tensor.dtype in HALVES:
                        narrow_ones.append((named, name, tensor))
                        wide = tensor.detach().float()
                        named[name] = nn.Parameter(wide, False) if named is module._parameters else wide

    def narrow(block: nn.Module, inputs: Any, output: Any) -> None:
        while narrow_ones:
            named, name, tensor = narrow_ones.pop()
            named[name] = tensor

    block.register_forward_pre_hook(widen)
    block.register_forward_hook(narrow, always_call=True)


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The elements of module lists, and other modules with weights of their own: together all weights,
    once."""
    for child in model.children():
        own = isinstance(child, nn.Linear | nn.Embedding) or not list(child.children())
        if isinstance(child, nn.ModuleList):
            yield from child
        elif own or next(child.parameters(recurse=False), None) is not None:
            yield child
        else:
            yield from _blocks(child)
