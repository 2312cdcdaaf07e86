"""A model server's log, for people: lines that vLLM 0.32 and SGLang 0.5.23 wrote, some left out."""

from __future__ import annotations

import pytest

from afterwit.engines.server.process import LAST_LINES, cause_of, end_of, step_of

CORE = "(EngineCore pid=11030) ERROR 11-26 01:12:50 [core.py:1510] "
WORKER = "(VllmWorker-0 pid=12123) ERROR 11-26 01:12:44 [multiproc_executor.py:953] "
MEMORY = "ValueError: Available memory on node 0 (7.49/11.46 GiB) on startup is less than desired"
VLLM = f"""\
W1126 01:10:33.476000 9587 torch/_library/triton.py:53] Triton not available, find_triton_kernels = []
(APIServer pid=9587) INFO 11-26 01:10:34 [api_utils.py:286] non-default args: {{'model_tag': 'm'}}
(EngineCore pid=11030) INFO 11-26 01:12:09 [core.py:133] Initializing a V1 LLM engine with config: warmup
{WORKER}WorkerProc failed to start.
{WORKER}Traceback (most recent call last):
{WORKER}  File "vllm/v1/worker/cpu_worker.py", line 83, in __init__
{WORKER}    raise ValueError(
{WORKER}    ^^^^^^^^^^^^^^^^^
{WORKER}{MEMORY}
{CORE}EngineCore failed to start.
{CORE}Traceback (most recent call last):
{CORE}  File "vllm/v1/executor/multiproc_executor.py", line 815, in wait_for_ready
{CORE}    raise e from None
{CORE}Exception: WorkerProc initialization failed due to an exception in a background process.
Process EngineCore:
Traceback (most recent call last):
  File "multiprocessing/process.py", line 314, in _bootstrap
    self.run()
Exception: WorkerProc initialization failed due to an exception in a background process.
Traceback (most recent call last):
  File "bin/vllm", line 8, in <module>
    sys.exit(main())
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}"""
SGLANG = """\
[2026-11-26 01:12:40] server_args=ServerArgs(model_path='m')
[2026-11-26 01:12:44] Init torch distributed begin.
[2026-11-26 01:12:50 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "sglang/srt/managers/scheduler.py", line 3000, in run_scheduler_process
    scheduler = Scheduler(server_args)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.

[2026-11-26 01:12:51] Received sigquit from a child process. It usually means the child failed."""
VALIDATION = """\
Traceback (most recent call last):
  File "bin/vllm", line 8, in <module>
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, The model has no such architecture.
    For further information visit https://errors.pydantic.dev
done"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (VLLM, [MEMORY]),
        (SGLANG, ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."]),
        (
            VALIDATION,
            [
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "  Value error, The model has no such architecture.",
                "    For further information visit https://errors.pydantic.dev",
            ],
        ),
        ("Traceback (most recent call last):\n  File 'm'\nKeyboardInterrupt", ["KeyboardInterrupt"]),
        ("loading\nvllm serve: error: unrecognized arguments: --no", []),
        ("", []),
    ],
)
def test_the_cause_is_what_the_first_traceback_ends_with(log: str, cause: list[str]) -> None:
    assert cause_of(log.splitlines()) == cause


def test_people_read_the_cause_before_the_end_or_a_longer_end_without_one() -> None:
    said = end_of(VLLM, "engine.log").splitlines()
    assert said[1] == MEMORY
    assert said[-1].startswith("RuntimeError: Engine core initialization failed")
    assert "its log, engine.log" in said[2]
    lines = [f"line {number}" for number in range(40)]
    assert end_of("\n".join(lines), "engine.log").splitlines()[1:] == lines[-LAST_LINES:]


@pytest.mark.parametrize(
    ("log", "step"),
    [
        ("", "importing its libraries"),
        (VLLM, "starting its engine"),
        (SGLANG, "starting its engine"),
        (f"{VLLM}\n(Worker pid=1) INFO [x] Starting to load model m...", "loading the weights"),
        ("(EngineCore pid=1) INFO [x] CPU KV cache size: 43,392 tokens", "making room for keys and values"),
        ("INFO:     Application startup complete.", "ready"),
    ],
)
def test_a_log_says_how_far_the_server_has_come(log: str, step: str) -> None:
    assert step_of(log) == step
