"""A GGUF file as a Hugging Face folder: its weights dequantised, tensor by tensor."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterwit.errors import SettingError
from afterwit.gguf.family import FREQUENCIES, Family, Names, config_of, family_of, heads_of, turned_back
from afterwit.gguf.file import INSTEAD, Head, Tensor, bytes_of, contradictions, library
from afterwit.gguf.vocabulary import KEYS, TEMPLATE, ends_of, tokenizer_config_of, tokenizer_of

if TYPE_CHECKING:
    import torch

SHARD = 2 << 30
"""Bytes of a file of weights, and so about the memory that the reading takes."""
WHOLE = "F32"
"""The kind of a file's matrices from which the folder is in single precision; from others in bfloat16."""
INDEX = "model.safetensors.index.json"


def write_folder(
    head: Head,
    folder: Path,
    progress: Callable[[int, int], object] = lambda done, of: None,
    *,
    shard: int = SHARD,
) -> None:
    """Write the model of a file into a folder; `progress` gets how many of how many tensors are written.

    SettingError, before any weight is read, for a file that cannot become one.
    """
    with contradictions(head.path):
        config, family = config_of(head), family_of(head)
        if not isinstance(template := head.fields.get(TEMPLATE), str):
            raise SettingError(
                f"{head.path} has no chat template: take the file of an assistant (an instruct or chat model)"
            )
        tokenizer, ends, model = tokenizer_of(head), ends_of(head), _empty(config)
        named, begin = tokenizer_config_of(head), head.fields.get(f"{KEYS}bos_token_id")
        places, dtype = _places(head, family, model)
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(folder / "tokenizer_config.json", named)
    _write_json(folder / "generation_config.json", {"eos_token_id": ends})
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    described = {**config, "architectures": [type(model).__name__], "dtype": dtype, "eos_token_id": ends}
    _write_json(folder / "config.json", {**described, "bos_token_id": begin})
    _write_weights(head, family, model.config, places, dtype, folder, progress, shard)


def _empty(config: Mapping[str, Any]) -> Any:
    """The model without weights: the names and shapes of its parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))


def _places(head: Head, family: Family, model: Any) -> tuple[dict[str, Tensor], str]:
    """The file's tensor for each of the model's parameters, by its name; and the folder's dtype.

    SettingError unless the file has them all, in their shapes, in readable kinds, whole, and no others.
    """
    names = Names(family, model.config.num_hidden_layers)
    rest, places = dict(head.tensors), {}
    rest.pop(FREQUENCIES, None)
    for name, parameter in model.named_parameters():  # a tied head is not named
        stored = names.of(name)
        if (tensor := rest.pop(stored, None)) is None:
            raise SettingError(f"{head.path} has no tensor {stored}: download it again, or take another file")
        if tensor.shape != tuple(parameter.shape):
            raise SettingError(
                f"{head.path} has {stored} as {tensor.shape}, where {tuple(parameter.shape)} belongs"
            )
        places[name] = tensor
    if rest:
        raise SettingError(f"{head.path} has a tensor {min(rest)}, which is not read: {INSTEAD}")
    _refuse_unreadable(head, places)
    kinds = {
        library().GGMLQuantizationType(each.kind).name for each in places.values() if len(each.shape) > 1
    }
    return places, "float32" if kinds == {WHOLE} else "bfloat16"


def _refuse_unreadable(head: Head, places: Mapping[str, Tensor]) -> None:
    gguf, size = library(), head.path.stat().st_size
    for name, tensor in places.items():
        try:
            kind = gguf.GGMLQuantizationType(tensor.kind)
            block, width = gguf.GGML_QUANT_SIZES[kind]
            gguf.dequantize(gguf.quants.np.zeros((1, width), "u1").view(_stored(kind)), kind)
        except (ValueError, KeyError, NotImplementedError) as error:
            raise SettingError(
                f"{head.path} has {name} in a quantisation that is not read ({error}): take another file of "
                "it, such as Q4_K_M or Q8_0"
            ) from error
        if tensor.start + bytes_of(tensor) > size or tensor.shape[-1] % block:
            raise SettingError(f"{head.path} is cut short: {name} is beyond its end; download it again")


def _stored(kind: Any) -> str:
    return {"F32": "<f4", "F16": "<f2"}.get(kind.name, "u1")


def _write_weights(
    head: Head,
    family: Family,
    config: Any,
    places: Mapping[str, Tensor],
    dtype: str,
    folder: Path,
    progress: Callable[[int, int], object],
    shard: int,
) -> None:
    import torch
    from safetensors.torch import save_file

    wanted = getattr(torch, dtype)
    shards, done = list(_shards(places, wanted.itemsize, shard)), 0
    where: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = (
            "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        )
        tensors = {}
        for name in names:
            rows = _dequantised(head, places[name])
            heads = heads_of(family, name, config)
            tensors[name] = (rows if heads is None else turned_back(rows, heads)).to(wanted).contiguous()
            progress(done := done + 1, len(places))
        save_file(tensors, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(names, file)
    if len(shards) > 1:
        total = sum(math.prod(each.shape) for each in places.values()) * wanted.itemsize
        _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": where})


def _shards(places: Mapping[str, Tensor], itemsize: int, most: int) -> Iterator[Sequence[str]]:
    """Names of tensors by file, none of more than `most` bytes unless a tensor is."""
    shard: list[str] = []
    size = 0
    for name, tensor in places.items():
        own = math.prod(tensor.shape) * itemsize
        if shard and size + own > most:
            yield shard
            shard, size = [], 0
        shard.append(name)
        size += own
    yield shard


def _dequantised(head: Head, tensor: Tensor) -> torch.Tensor:
    import torch

    gguf = library()
    kind = gguf.GGMLQuantizationType(tensor.kind)
    with head.path.open("rb") as file:
        file.seek(tensor.start)
        data = gguf.quants.np.frombuffer(file.read(bytes_of(tensor)), _stored(kind))
    rows = data.reshape(*tensor.shape[:-1], -1)
    return torch.from_numpy(gguf.dequantize(rows, kind).astype("<f4")).reshape(tensor.shape)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
