"""Models and adapters as GGUF files, by the rules of llama.cpp's converters.

An adapter is written without torch: a gateway does so for llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from afterwit.chat_format.folder import read_json
from afterwit.engines.model_files import weights_of
from afterwit.errors import SettingError
from afterwit.gguf.family import (
    FREQUENCIES,
    Family,
    Names,
    divisors_of,
    family_named,
    fields_of,
    heads_of,
    turned,
)
from afterwit.gguf.file import library
from afterwit.gguf.vocabulary import fields_of as vocabulary_of
from afterwit.weights.adapter import CONFIG, PREFIX, TENSORS

if TYPE_CHECKING:
    import torch

KINDS = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}
"""The kinds in which a model's matrices are written, and llama.cpp's numbers of such files."""
EXACT = "F32"
"""The kind of vectors, such as norms, and of adapters."""
Tensors = Mapping[str, tuple[Sequence[int], Callable[[], Any]]]
"""By their names in the file: shapes, and what reads them, once each and in this order."""


def write_model(folder: Path, out: Path, kind: str, *, name: str) -> None:
    """Write the model in a Hugging Face folder as one file.

    SettingError if llama.cpp would compute another model, or split a text into other tokens.
    """
    from safetensors import safe_open

    config, family, about = described(folder)
    names = Names(family, config.num_hidden_layers)
    tensors: dict[str, tuple[Sequence[int], Callable[[], Any]]] = {}
    if (rope := config.rope_parameters)["rope_type"] == "llama3":
        divisors = divisors_of(rope, rope["rope_theta"], about[f"{family.name}.rope.dimension_count"])
        tensors[FREQUENCIES] = (len(divisors),), lambda: library().quants.np.array(divisors, "f4")
    for file in weights_of(folder):
        with safe_open(file, framework="pt") as stored:
            for each in stored.keys():  # noqa: SIM118 - no mapping
                if each != "lm_head.weight" or not config.tie_word_embeddings:
                    read = partial(_rows, file, each, heads_of(family, each, config))
                    tensors[names.of(each)] = stored.get_slice(each).get_shape(), read
    about |= {"general.name": name, "general.file_type": KINDS[kind]}
    _write(out, family, about, tensors, kind.upper())


def described(folder: Path) -> tuple[Any, Family, dict[str, Any]]:
    """The configuration of a folder's model, its family, and its file's settings. SettingError as above."""
    from afterwit.weights.weights import read_config

    config = read_config(folder)
    family, fields = fields_of(config)
    about = {
        "general.type": "model",
        "general.quantization_version": 2,
        **{f"{family.name}.{key}": value for key, value in fields.items()},
        **vocabulary_of(folder, config.vocab_size),
    }
    return config, family, about


def write_adapter(base: Path, folder: Path, out: Path, *, name: str) -> None:
    """Write a folder's LoRA adapter, which is over the model in `base`, as one file.

    llama.cpp adds alpha / rank * B A to a tensor, so B's rows are in the order of the tensor's. SettingError
    if the folder holds no adapter of a model that is written.
    """
    from safetensors.numpy import load_file

    alpha = read_json(folder / CONFIG)["lora_alpha"]
    config = SimpleNamespace(**read_json(base / "config.json"))
    family = family_named(config.model_type)
    names = Names(family, config.num_hidden_layers)
    tensors: dict[str, tuple[Sequence[int], Callable[[], Any]]] = {}
    for place, factor in load_file(folder / TENSORS).items():
        module, _, end = place.removeprefix(PREFIX).removesuffix(".weight").rpartition(".lora_")
        if end not in ("A", "B"):
            raise SettingError(f"{folder / TENSORS} has {place}, which is not a factor of a layer")
        heads = heads_of(family, module, config) if end == "B" else None
        rows = factor if heads is None else turned(factor, heads)
        tensors[f"{names.of(f'{module}.weight')}.lora_{end.lower()}"] = rows.shape, partial(_same, rows)
    about = {
        "general.type": "adapter",
        "general.name": name,
        "adapter.type": "lora",
        "adapter.lora.alpha": float(alpha),  # llama.cpp ends at an integer
    }
    _write(out, family, about, tensors, EXACT)


def _same(array: Any) -> Any:
    return array


def _rows(file: Path, name: str, heads: int | None) -> Any:
    """A tensor of a safetensors file in single precision, its rows in llama.cpp's order."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        rows: torch.Tensor = tensors.get_tensor(name)
    return (rows if heads is None else turned(rows, heads)).float().numpy()


def _write(out: Path, family: Family, about: Mapping[str, Any], tensors: Tensors, kind: str) -> None:
    """Write a file; one tensor at a time is in memory."""
    gguf = library()
    writer = gguf.GGUFWriter(out, family.name)
    for key, value in about.items():
        writer.add_key_value(key, value, *_types(key, value))
    for name, (shape, _) in tensors.items():
        own = _kind_of(shape, kind)
        block, size = gguf.GGML_QUANT_SIZES[own]
        writer.add_tensor_info(name, shape, gguf.quants.np.dtype("f4"), math.prod(shape) // block * size, own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for shape, read in tensors.values():
        rows = gguf.quants.np.ascontiguousarray(read(), "f4")
        writer.write_tensor_data(gguf.quantize(rows, _kind_of(shape, kind)))
    writer.close()


def _types(key: str, value: Any) -> Iterator[Any]:
    types = library().GGUFValueType
    one = value[0] if isinstance(value, list) else value
    if isinstance(value, list):
        yield types.ARRAY
    if isinstance(one, bool):
        yield types.BOOL
    elif isinstance(one, int):
        yield types.INT32 if key.endswith("token_type") else types.UINT32
    else:
        yield types.STRING if isinstance(one, str) else types.FLOAT32


def _kind_of(shape: Sequence[int], kind: str) -> Any:
    """The kind of a tensor: vectors are exact, and rows that make no whole blocks are in half precision."""
    gguf = library()
    wanted = gguf.GGMLQuantizationType[kind if len(shape) > 1 else EXACT]
    block, _ = gguf.GGML_QUANT_SIZES[wanted]
    return wanted if shape[-1] % block == 0 else gguf.GGMLQuantizationType.F16
