"""The GPUs of each part, refusals, and the printed lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit import recipes
from afterwit.cli.app import app
from afterwit.config import load
from afterwit.errors import SettingError
from afterwit.home.model import refuse_other_kinds
from afterwit.planning.gpus import Gpu, found_gpus, gpus_here, listed_gpus, named_gpus
from afterwit.planning.plan import models_of, parts_of, plan
from afterwit.planning.report import report
from docs.cards import CONFIGS

SERVERS = ["engine.kind=vllm", 'engine.url=["http://127.0.0.1:8000","http://127.0.0.1:8001"]']
OTHER_JUDGE = ["judge.url=http://127.0.0.1:8010/v1", "judge.model=j"]
EIGHT = named_gpus("80GB", 8)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of Qwen3-4B, without weights."""
    folder = tmp_path_factory.mktemp("qwen")
    text = json.dumps(CONFIGS["Qwen3-4B"] | {"dtype": "bfloat16"})
    (folder / "config.json").write_text(text)
    return folder


def planned(folder: Path, *pairs: str, recipe: str | None = None, gpus: tuple[Gpu, ...] = EIGHT) -> str:
    settings = load(home=folder, pairs=pairs, direct={"model": str(folder)}, recipe=recipe, environment={})
    return report(settings, folder, gpus)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("8gpu-topk-select", {"policy": 2, "judge": 1, "teacher": 1, "learner": 4}),
        ("8gpu-combine", {"policy": 2, "judge": 2, "learner": 4}),
        ("8gpu-combine-lora", {"policy": 2, "judge": 2, "learner": 4}),
        ("8gpu-binary-rl", {"policy": 2, "judge": 2, "learner": 4}),
        ("8gpu-opd", {"policy": 2, "judge": 2, "learner": 4}),
        ("8gpu-opd-topk", {"policy": 2, "judge": 2, "learner": 4}),
        ("4gpu-lora", {"policy": 1, "judge": 1, "learner": 2}),
        ("4gpu-opd-topk-lora", {"policy": 1, "judge": 1, "learner": 2}),
    ],
)
def test_each_published_split_fits_its_machine_and_no_two_parts_share_a_gpu(
    qwen: Path, name: str, split: dict[str, int]
) -> None:
    settings = load(home=qwen, direct={"model": str(qwen)}, recipe=name, environment={})
    gpus = named_gpus("80GB", sum(split.values()))
    parts = plan(settings, models_of(settings, qwen), gpus).parts
    assert {part.name: len(part.gpus) for part in parts} == split
    assert [gpu for part in parts for gpu in part.gpus] == list(gpus)
    assert name in recipes.machines()


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["placement.policy=9"], "the placement has 9 GPUs .* there are 8"),
        (["placement.policy=2"], "placement.policy is 2 GPUs, but the embedded engine uses one"),
        ([*SERVERS, "placement.policy=3"], "3 GPUs, which 2 servers"),
        (
            ["engine.kind=vllm", "placement.policy=3"],
            "gives a server 3 GPUs, which do not divide .* 32 heads",
        ),
        ([*SERVERS, "placement.policy=2", "learner.lora_rank=0"], "engine.swap is 'adapters'"),
        (["placement.judge=1"], "placement.judge is 1 GPUs, but no server judges"),
        (["placement.teacher=1"], "placement.teacher is 1 GPUs, but no server of its own teaches"),
        (["placement.learner=2"], "learner.processes is 1, but placement.learner is 2 GPUs"),
        (["learner.processes=2"], "learner.processes is 2, but placement.learner is 0, a share"),
        (["learner.processes=3", "learner.shards=2", "learner.lora_rank=0"], "not a multiple of shards, 2"),
        (["learner.shards=2", "learner.lora_rank=0"], "processes is 1, which is not a multiple of shards, 2"),
        (["learner.enabled=false", "placement.learner=1"], "but learner.enabled is false"),
        (["engine.kind=vllm", "placement.policy=0"], "the learner has no GPU"),
        (["engine.kind=vllm", "placement.policy=0", "learner.enabled=false"], "no part has a GPU"),
        (["placement.polcy=1"], "did you mean placement.policy"),
        (["learner.teacher=server", "objective.objective=topk_distill"], "cannot teach"),
        (
            ["placement.learner=1", "learner.checkpointing=false"],
            r"does not hold the learner: [\d.]+ GB are needed .* learner.checkpointing = true",
        ),
        ([], r"does not hold the policy and learner: .*; give the learner a GPU of its own"),
        (
            [
                "placement.learner=1",
                "learner.micro_batch_tokens=1",
                "learner.lora_rank=0",
            ],  # long passes alone
            'set learner.dtype = "bfloat16"',
        ),
        (
            ["placement.learner=1", "learner.checkpointing=true", "learner.lora_rank=0"],
            'set learner.dtype = "bfloat16"',
        ),
        (
            [
                *("placement.learner=2", "learner.processes=2", "learner.checkpointing=true"),
                *("learner.lora_rank=0", "learner.dtype=bfloat16"),
            ],
            "set learner.shards = 2",
        ),
        (
            [
                *("placement.learner=1", "learner.checkpointing=true"),
                *("learner.lora_rank=0", "learner.dtype=bfloat16"),
            ],
            "set learner.lora_rank = 16",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(qwen: Path, pairs: list[str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        planned(qwen, *pairs)


def test_small_gpus_are_told_what_would_do(qwen: Path) -> None:
    small = named_gpus("12", 4)
    with pytest.raises(SettingError, match=r"does not hold the policy: .*lower placement\.context"):
        planned(qwen, recipe="4gpu-lora", gpus=small)
    with pytest.raises(SettingError, match=r"learner: .*lower learner\.max_tokens"):
        planned(qwen, "placement.context=1024", recipe="4gpu-lora", gpus=small)


def test_a_judge_has_as_many_copies_as_its_gpus_hold(qwen: Path) -> None:
    pairs = (*OTHER_JUDGE, "engine.kind=sglang", "placement.judge=2", "placement.learner=1")
    said = planned(qwen, *pairs, "learner.checkpointing=true")
    assert "--dp-size 2" in said
    tight = planned(qwen, *pairs, "learner.checkpointing=true", gpus=named_gpus("60", 4))
    assert "--dp-size 2" in tight
    mixed = (*named_gpus("60", 1), *(Gpu(name=str(n), size=14 * 10**9) for n in (1, 2)), *EIGHT[3:])
    assert "--tp-size 2" in planned(qwen, *pairs, "learner.checkpointing=true", gpus=mixed)


def test_a_server_gets_the_flags_that_up_would_give_it_and_each_its_gpu(model: Path) -> None:
    said = planned(model, *SERVERS, "placement.policy=2", "placement.learner=1").splitlines()
    first, second, own = said[-3:]
    assert first.startswith("CUDA_VISIBLE_DEVICES=0 ")
    assert "--enable-lora" in first
    assert "--port 8000" in first
    assert second.startswith("CUDA_VISIBLE_DEVICES=1 ")
    assert "--port 8001" in second
    assert own == f"CUDA_VISIBLE_DEVICES=2 CUDA_DEVICE_ORDER=PCI_BUS_ID ./afterwit serve {model}"


def test_a_server_that_shares_its_gpu_with_the_learner_is_told_its_share(model: Path) -> None:
    assert "--gpu-memory-utilization 0." in planned(model, "engine.kind=vllm")


def test_the_embedded_engine_comes_behind_the_learners_gpus(model: Path) -> None:
    pairs = ("placement.learner=2", "learner.processes=2")
    assert planned(model, *pairs).endswith(
        f"CUDA_VISIBLE_DEVICES=1,2,0 CUDA_DEVICE_ORDER=PCI_BUS_ID ./afterwit serve {model} "
        "--set engine.device=cuda:2"
    )


def test_on_the_cpu_all_parts_share_the_machines_memory_and_no_part_sees_a_gpu(model: Path) -> None:
    pairs = (*SERVERS, *OTHER_JUDGE, "placement.device=cpu", "placement.policy=2", "placement.judge=1")
    pairs += ("learner.micro_batch_tokens=4096",)  # on less memory a pass would be smaller
    settings = load(home=model, pairs=pairs, direct={"model": str(model)}, environment={})
    (memory, *_) = gpus = gpus_here(settings.placement)
    said = report(settings, model, gpus)
    assert len(gpus) == 3
    assert "2 x 1 process" in said
    assert "GB of this machine's memory" in said
    first, second, judge, own = said.splitlines()[-4:]
    for line in (first, second, judge, own):
        assert line.startswith("CUDA_VISIBLE_DEVICES='' ")
    for line in (first, second, judge):
        assert "--kv-cache-memory-bytes " in line
        assert "--gpu-memory-utilization" not in line
    parts = plan(settings, models_of(settings, model), gpus).parts
    taken = sum(part.needs * len(part.gpus) for part in parts)
    tight = (Gpu(name=memory.name, size=taken - 1),) * 3
    with pytest.raises(SettingError, match=r"this machine's memory of 0 GB does not hold .* fewer processes"):
        report(settings, model, tight)
    assert report(settings, model, (Gpu(name=memory.name, size=taken),) * 3)


def test_without_a_gpu_the_learner_is_counted_with_the_passes_that_it_will_have(qwen: Path) -> None:
    pairs = ("placement.device=cpu", "learner.checkpointing=false", "learner.max_tokens=1")
    settings = load(home=qwen, pairs=pairs, direct={"model": str(qwen)}, environment={})

    def of_a_pass(size: float) -> int:
        parts = parts_of(settings, models_of(settings, qwen), (Gpu(name="", size=int(size)),))
        (learner,) = [part for part in parts if part.name == "learner"]
        return learner.memory["a pass or a step"]

    assert of_a_pass(16e9) < of_a_pass(64e9) < of_a_pass(1e12) == of_a_pass(2e12)


def test_sglang_on_the_cpu_and_an_engine_of_our_own_are_told_where_they_run(model: Path) -> None:
    def said(*pairs: str) -> str:
        settings = load(
            home=model,
            pairs=("placement.device=cpu", *pairs),
            direct={"model": str(model)},
            environment={},
        )
        return report(settings, model, gpus_here(settings.placement))

    assert "--device cpu --max-total-tokens 2048" in said("engine.kind=sglang")
    assert said().endswith(f"CUDA_VISIBLE_DEVICES='' ./afterwit serve {model} --set engine.device=cpu")


def test_a_model_that_is_not_here_yet_has_no_line_of_flags(qwen: Path) -> None:
    assert "first: the flags of its servers follow" in planned(qwen, recipe="4gpu-lora")


def test_a_quantised_copy_beside_weights_that_train_is_left_alone(qwen: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes((qwen / "config.json").read_bytes())
    (folder / "model.Q4.gguf").touch()
    with pytest.raises(SettingError, match=r"name one of them, such as .*model.Q4.gguf"):
        refuse_other_kinds(str(folder))
    (folder / "model.safetensors").touch()
    refuse_other_kinds(str(folder))


def test_an_address_without_a_port_cannot_be_started(model: Path) -> None:
    for url in ("http://gpu", "http://gpu:x"):
        with pytest.raises(SettingError, match="it needs a port"):
            planned(model, "engine.kind=vllm", f"engine.url={url}")


def test_judge_and_teacher_may_be_other_models(qwen: Path, model: Path) -> None:
    pairs = ("placement.context=512", f"placement.judge_model={model}", f"placement.teacher_model={model}")
    said = planned(qwen, *pairs, recipe="8gpu-topk-select")
    assert f"--model-path {model} --host 127.0.0.1 --port 8010" in said
    assert f"--model-path {model} --host 127.0.0.1 --port 8020" in said
    with pytest.raises(SettingError, match="does not hold the learner"):
        planned(model, f"learner.teacher={qwen}", "placement.learner=1", gpus=named_gpus("8", 2))


def test_the_command_prints_the_plan_or_ends_with_1_and_the_numbers(qwen: Path, tmp_path: Path) -> None:
    run, home = CliRunner(), ["--home", str(tmp_path)]
    fits = ["plan", str(qwen), "--recipe", "4gpu-lora", "--gpu-memory", "80GB", *home]
    ended = run.invoke(app, [*fits, "--gpus", "4"])
    assert ended.exit_code == 0
    assert f"./afterwit serve {qwen} --recipe 4gpu-lora --home {tmp_path}" in ended.stdout
    ended = run.invoke(app, [*fits, "--gpus", "2"])
    assert ended.exit_code == 1
    assert (
        "the placement has 4 GPUs (policy 1, judge 1, teacher 0, learner 2), but there are 2" in ended.stderr
    )
    on_cpu = run.invoke(app, [*fits, "--set", "placement.device=cpu"])
    assert "placement.device is cpu, so no part has a GPU" in on_cpu.stderr
    assert not list(tmp_path.iterdir())


def test_gpus_are_those_that_the_environment_lets_through() -> None:
    listing = "0, GPU-a, 81559\n1, GPU-b, 81559\n2, GPU-c, 40960\n"
    assert [gpu.name for gpu in listed_gpus(listing, None)] == ["0", "1", "2"]
    assert listed_gpus(listing, "GPU-c,1,7") == (
        Gpu(name="2", size=40960 * 2**20),
        Gpu(name="1", size=81559 * 2**20),
    )
    assert [gpu.name for gpu in listed_gpus(listing, "1,-1,0")] == ["1"], "CUDA reads no further"
    assert [gpu.name for gpu in listed_gpus("0, GPU-8932f937-d72c, 8192\n", "GPU-8932")] == ["0"]
    with pytest.raises(SettingError, match="CUDA_VISIBLE_DEVICES=-1 permits"):
        listed_gpus(listing, "-1")
    with pytest.raises(SettingError, match="there is no GPU here: name them"):
        listed_gpus("", None)
    with pytest.raises(SettingError, match=r"as the memory of GPU 0"):
        listed_gpus("0, GPU-a, [N/A]", None)


def test_gpus_of_this_machine_are_those_that_nvidia_smi_says(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    with pytest.raises(SettingError, match="there is no nvidia-smi here"):
        found_gpus({"PATH": str(tmp_path)})
    program.write_text("#!/bin/sh\necho '0, GPU-a, 8192'\n")
    program.chmod(0o755)
    assert found_gpus({"PATH": f"{tmp_path}"}) == (Gpu(name="0", size=8192 * 2**20),)
    program.write_text("#!/bin/sh\nexit 9\n")
    with pytest.raises(SettingError, match="cannot list the GPUs"):
        found_gpus({"PATH": f"{tmp_path}"})


def test_a_size_is_written_in_gb_or_gib() -> None:
    assert [named_gpus(size, 1)[0].size for size in ("80GB", "80", "1.5 GiB")] == [
        80 * 10**9,
        80 * 10**9,
        3 * 2**29,
    ]
    for wrong in ("large", "0", "80MB"):
        with pytest.raises(SettingError, match="write it in GB"):
            named_gpus(wrong, 1)
