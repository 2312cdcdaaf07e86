"""Files that start several machines (Kubernetes, systemd, Slurm), as far as one machine can test them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.run as torchrun
import typer
import yaml

from afterwit.cli.app import app
from afterwit.config import ServeSettings, load
from afterwit.engines.server.settings import VllmSettings
from afterwit.engines.vllm.server import environment, flags
from afterwit.running.serve import LEARNER_STOP_S
from tests.docs.kubernetes import faults
from tests.fakes.models import tiny_qwen3

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sbatch"))


def documents() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def pods() -> dict[str, dict[str, Any]]:
    """The pod of each stateful set, by its name."""
    sets = [each for each in documents() if each["kind"] == "StatefulSet"]
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in sets}


def container(pod: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in pods()[pod]["containers"] if each["name"] == name]
    return dict(found)


def parsed(words: Sequence[str]) -> Mapping[str, Any]:
    """The parsed parameters of `afterwit WORDS`; nothing runs."""
    group = typer.main.get_command(app)
    outer = group.make_context("afterwit", list(words), resilient_parsing=True)
    name, command, rest = group.resolve_command(outer, list(words))  # type: ignore[attr-defined]
    inner = command.make_context(name, rest, parent=outer)
    return dict(inner.params)


def commands(script: str) -> Iterator[list[str]]:
    """The words of each command of a shell script, its lines joined."""
    for line in script.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def after(words: Sequence[str], word: str) -> list[str]:
    return list(words[words.index(word) + 1 :])


def test_the_schemas_of_kubernetes_know_every_field() -> None:
    assert [faults(document) for document in documents()] == [[] for _ in documents()]
    wrong = next(each for each in documents() if each["kind"] == "StatefulSet")
    wrong["spec"]["replica"] = 1
    (fault,) = faults(wrong)
    assert "replica" in fault


def test_what_pods_name_is_there(tmp_path: Path) -> None:
    (settings,) = [each for each in documents() if each["kind"] == "ConfigMap"]
    known = load(home=tmp_path, environment=settings["data"])
    services = {each["metadata"]["name"] for each in documents() if each["kind"] == "Service"}
    assert known.store.url is not None
    assert known.store.url.partition("@")[2].partition("/")[0] in services
    for pod in pods().values():
        volumes = {each["name"] for each in pod.get("volumes", ())} | {"data"}
        for each in pod["containers"]:
            assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
            named = [
                source["configMapRef"]["name"]
                for source in each.get("envFrom", ())
                if "configMapRef" in source
            ]
            assert set(named) <= {settings["metadata"]["name"]}
    for name in ("serving", "learner"):
        assert pods()[name]["enableServiceLinks"] is False


def test_pods_run_commands_that_there_are_and_get_the_time_for_a_clean_end() -> None:
    for name, inside in (("serving", "gateway"), ("learner", "learner")):
        assert parsed(container(name, inside)["args"])
        assert pods()[name]["terminationGracePeriodSeconds"] > ServeSettings().drain_s + LEARNER_STOP_S
    assert parsed(container("serving", "gateway")["args"])["stages"] == "gateway,judge"
    learner = container("learner", "learner")
    assert parsed(learner["args"])["follow"]
    assert parsed(learner["args"])["learner_processes"] == learner["resources"]["limits"]["nvidia.com/gpu"]
    with pytest.raises(Exception, match="No such option"):
        parsed(["train", "--folow"])


def test_the_engines_have_the_flags_that_up_would_give_them(tmp_path: Path) -> None:
    needed = flags(tiny_qwen3(tmp_path), VllmSettings(), lora_rank=16)
    engine = container("serving", "engine")
    in_pod = [part for word in engine["command"] for part in word.split("=", 1)]
    unit = (DEPLOY / "systemd" / "afterwit-engine@.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"(?m)^ExecStart=((?:.*\\\n)*.*)$", unit)
    given = {each["name"]: each["value"] for each in engine["env"]}
    for words in (in_pod, shlex.split(line.replace("\\\n", " "))):
        assert " ".join(needed) in " ".join(words)
    for name, value in environment(VllmSettings()).items():
        assert given[name] == value
        assert f"{name}={value}" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_units_of_several_machines(tmp_path: Path) -> None:
    """The programs are other ones here: systemd looks whether they are there."""
    for path in UNITS:
        text = re.sub(r"/opt/\w+/bin/\w+", sys.executable, path.read_text(encoding="utf-8"))
        unit = tmp_path / path.name.replace("@", "@0")
        unit.write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_counts_every_unit_as_confined() -> None:
    for path in UNITS:
        command = ["systemd-analyze", "security", "--offline=yes", "--threshold=45", "--no-pager", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_container_gains_a_right_or_changes_its_own_program() -> None:
    for name, pod in pods().items():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in pod["containers"]:
            held = each["securityContext"]
            assert held["allowPrivilegeEscalation"] is False
            assert held["capabilities"] == {"drop": ["ALL"]}
            assert held["readOnlyRootFilesystem"] is True, name
            mounted = {place["mountPath"]: place["name"] for place in each["volumeMounts"]}
            empty = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
            assert mounted["/tmp"] in empty


def test_units_run_commands_that_there_are_and_get_the_time_for_a_clean_end() -> None:
    ours = [path.read_text(encoding="utf-8") for path in UNITS if "engine" not in path.name]
    assert len(ours) == 2
    for unit in ours:
        (line,) = re.findall(r"(?m)^ExecStart=\S+/afterwit (.+)$", unit)
        assert parsed(shlex.split(line))
        (seconds,) = re.findall(r"TimeoutStopSec=(\d+)", unit)
        assert int(seconds) > ServeSettings().drain_s + LEARNER_STOP_S


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.name))
def test_the_lines_for_slurm_are_of_the_shell_of_torchrun_and_of_ours(path: Path, tmp_path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    script = path.read_text(encoding="utf-8")
    (words,) = [each for each in commands(script) if each[0] == "srun"]
    ours = after(words, "afterwit" if "-m" in words else ".venv/bin/afterwit")
    if "-m" in words:
        launched = torchrun.get_args_parser().parse_args(after(words, ".venv/bin/torchrun"))
        assert launched.module
        assert (launched.training_script, launched.training_script_args) == ("afterwit", ours)
    found = parsed(ours)
    assert load(home=tmp_path, pairs=found["set_"] or (), recipe=found["recipe"], environment={})
    (before_end,) = re.findall(r"(?m)^#SBATCH --signal=TERM@(\d+)$", script)
    assert int(before_end) > ServeSettings().drain_s + LEARNER_STOP_S


def test_the_containers_extras_are_the_packages() -> None:
    container = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    there = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [word for line in re.findall(r"EXTRAS[=:] ?([\w,]+)", container) for word in line.split(",")]
    assert {"local", "postgresql", "s3"} == set(named) <= set(there["optional-dependencies"])
