"""Runs in a vLLM worker: `--worker-extension-cls afterwit_vllm.Reload`.

The server's own Python imports it before the model is built, if this folder is in PYTHONPATH. It needs
nothing of Afterwit there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import vllm._custom_ops as operators
import vllm.model_executor.layers.utils as layers
from safetensors import safe_open
from vllm.platforms import current_platform

if current_platform.is_cpu():
    # On a CPU vLLM packs the weights of linear layers for its kernels and frees the originals: new weights
    # would then be read, and not used. Unpacked weights take the plain kernels.
    operators._supports_onednn = False
    layers.check_cpu_sgl_kernel = lambda n, k, dtype: False


class Reload:
    """Methods that every worker gets, for `/collective_rpc`."""

    model_runner: Any

    def afterwit_ping(self) -> dict[str, int]:
        """That the extension is there: the version of its protocol."""
        return {"protocol": 1}

    def afterwit_load(self, files: list[str]) -> dict[str, int]:
        """Replace the model's weights by those of safetensors files: how many tensors were read."""
        count = 0

        def tensors() -> Iterator[tuple[str, Any]]:
            nonlocal count
            for file in files:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118 - not a mapping
                        count += 1
                        yield name, opened.get_tensor(name)

        self.model_runner.reload_weights(weights_iterator=tensors())
        return {"tensors": count}
