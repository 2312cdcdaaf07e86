"""The three processes of a training run with Atropos, all on the loopback address."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
from matplotlib import pyplot as plt
from rich.console import Console

from afterwit.api.turns import AfterwitError
from afterwit.api.worlds import ToolsWorld
from afterwit_atropos.environment.metrics import LINES
from afterwit_atropos.group import Profile

SETTINGS = Path(__file__).with_name("demo.toml")

MODEL = ToolsWorld.folder / "model"

HELD_OUT = 100

LOOK_S = 0.2

START_S = 120.0
"""Longest wait for the server to answer."""

STOP_S = 30.0


class DemoFailed(AfterwitError):
    """One of the processes ended too early. The message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The policy on the held-out tasks."""

    version: int
    pass_rate: float
    correctness: float


def run(
    out: Path,
    *,
    steps: int,
    profile: Profile,
    seed: int,
    held_out: int = HELD_OUT,
    environment: Mapping[str, object] = MappingProxyType({}),
    trainer: Sequence[str] = (),
) -> list[Measured]:
    """Train for `steps` updates. Returns how the policy did on tasks that it never saw. Logs go to `out`.

    `environment` are further flags of the environment by name (`env.engine`), `trainer` of the trainer.
    DemoFailed if a process ends too early.
    """
    console, metrics = Console(), out / "metrics"
    for folder in (out / "home", metrics):
        shutil.rmtree(folder, ignore_errors=True)
    metrics.mkdir(parents=True)
    url = f"http://127.0.0.1:{_free_port()}"
    shown: list[Measured] = []
    with ExitStack() as stack:
        server = stack.enter_context(_process("run-api", _server(url), out))
        _wait_for(url, server, out)
        console.print(f"run-api answers at {url}; logs are in {out}", highlight=False)
        learning = stack.enter_context(_process("trainer", [*_trainer(url, out, steps), *trainer], out))
        flags = {**_environment(url, metrics, steps, profile, seed, held_out), **environment}
        playing = stack.enter_context(_process("environment", _command(flags), out))
        while True:
            over = playing.poll() is not None
            _show(metrics / LINES, shown, console)
            if over:
                break
            for name, process in (("run-api", server), ("trainer", learning)):
                if process.poll() not in (None, 0):
                    raise _failed(name, out)
            time.sleep(LOOK_S)
        if playing.returncode != 0:
            raise _failed("environment", out)
        with contextlib.suppress(subprocess.TimeoutExpired):
            learning.wait(STOP_S)
    return shown


def _server(url: str) -> list[str]:
    port = url.rpartition(":")[2]
    return ["atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", port]


def _trainer(url: str, out: Path, steps: int) -> list[str]:
    flags = ["--home", str(out / "home"), "--config", str(SETTINGS), "--url", url, "--steps", str(steps)]
    return ["afterwit", "train", str(MODEL), "--from", "atropos", *flags]


def _environment(
    url: str, metrics: Path, steps: int, profile: Profile, seed: int, held_out: int
) -> dict[str, object]:
    """Its flags by their names."""
    settings = {
        "task_set": "tools_world",
        "engine": "embedded",
        "afterwit_config": SETTINGS,
        "rollout_server_url": url,
        "profile": profile.value,
        "agent_temperature": 0.6,
        "max_agent_turns": 8,
        "max_token_length": 96,
        "total_steps": steps - 1,  # the library ends when this many batches and one more were given out
        "steps_per_eval": max(1, steps // 3),
        "eval_size": held_out,
        "eval_at_ends": True,
        "min_items_sent_before_logging": 1,
        "tensorboard_dir": metrics,
        "seed": seed,
        "use_wandb": False,
    }
    return {"openai.model_name": MODEL, **{f"env.{name}": value for name, value in settings.items()}}


def _command(flags: Mapping[str, object]) -> list[str]:
    given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    return ["afterwit", "atropos", "serve", *given]


@contextmanager
def _process(name: str, module: Sequence[str], out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m` of a module, its output in NAME.log; stopped at the end."""
    with (out / f"{name}.log").open("wb") as printed:
        process = subprocess.Popen([sys.executable, "-m", *module], stdout=printed, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes], out: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=LOOK_S).close()
            return
        time.sleep(LOOK_S)
    raise _failed("run-api", out)


def _failed(name: str, out: Path) -> DemoFailed:
    log = out / f"{name}.log"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
    return DemoFailed(f"{name} ended too early, see {log}:\n" + "\n".join(last))


def _show(lines: Path, shown: list[Measured], console: Console) -> None:
    """Print the evaluations that are new."""
    for values in _evaluations(lines)[len(shown) :]:
        measured = Measured(
            version=int(values["eval/weight_version"]),
            pass_rate=values["eval/pass_rate"],
            correctness=values["eval/mean_correctness"],
        )
        shown.append(measured)
        console.print(
            f"version {measured.version:>3}   passes {measured.pass_rate:.2f} of {values['eval/n_items']:.0f}"
            f" held-out tasks, correctness {measured.correctness:.2f}",
            highlight=False,
        )


def _evaluations(lines: Path) -> list[Mapping[str, float]]:
    if not lines.exists():
        return []
    whole = [
        line for line in lines.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")
    ]
    return [values for line in whole if "eval/pass_rate" in (values := json.loads(line))]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


mpl.use("Agg")


def draw(points: Sequence[Measured], title: str, file: Path) -> None:
    """Pass rate and correctness on held-out tasks over the trainer's versions."""
    versions = [point.version for point in points]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(
        versions,
        [point.correctness for point in points],
        color="0.55",
        marker="s",
        markersize=4,
        label="mean correctness",
    )
    axes.plot(
        versions,
        [point.pass_rate for point in points],
        color="tab:blue",
        marker="o",
        linewidth=2.5,
        label="pass rate",
    )
    axes.set(xlabel="version", ylabel="held-out tasks", ylim=(-0.02, 1.05), title=title)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)
    plt.close(figure)
