"""`afterwit atropos serve` with the built-in coding tasks, before a real run-api: only good solutions pay."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from afterwit.chat_format.render import Renderer
from afterwit_atropos.coding.tasks import built_in
from afterwit_atropos.environment.metrics import LINES
from afterwit_atropos.group import ScoredGroup
from afterwit_atropos.server import AtroposServer, Registration
from afterwit_atropos.wire import read
from plugins.atropos.tests.environment.conftest import Start
from plugins.atropos.tests.environment.scripted import CONTEXT, Scripted
from plugins.atropos.tests.sandbox.boxes import isolated
from tests.engines.vllm.recorded import listening
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.servers.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.atropos]
GROUP = 4
WORTH, WORTHLESS = 0.7 + 0.15 + 0.3 * 0.15, 0.15 + 0.3 * 0.15
"""Two turns, and one tool that is not the terminal."""


@isolated
async def test_a_policy_that_cheats_gains_nothing_in_any_task(
    run_api: Server, started: Start, tmp_path: Path
) -> None:
    model = tiny_qwen3(tmp_path / "model", max_position_embeddings=CONTEXT)
    renderer, trained = renderer_of(model), len(built_in()) - 1
    trainer = AtroposServer(url=run_api.url, timeout_s=60.0)
    trainer.register(
        Registration(
            batch_size=GROUP, max_token_len=CONTEXT, starting_step=0, checkpoint_dir="", num_steps=trained
        )
    )
    async with listening(Scripted(model)) as url:
        flags = {
            "env.rollout_server_url": run_api.url,
            "env.total_steps": trained - 1,  # it ends when more batches than these were given out
            "env.max_token_length": 4096,
            "env.tokenizer_name": model,
            "env.tensorboard_dir": tmp_path / "metrics",
            "env.use_wandb": False,
            "openai.base_url": f"{url}/v1",
            "openai.model_name": "tiny",
        }
        environment = started("environment", "atropos", "serve", *(f"--{k}={v}" for k, v in flags.items()))
        found: list[Any] = []
        while environment.poll() is None:
            found += await asyncio.to_thread(trainer.batch) or ()
            await asyncio.sleep(0.2)

    log = (tmp_path / "environment.log").read_text()
    assert environment.returncode == 0, log[-2000:]
    assert len(found) >= trained
    assert "Traceback" not in log
    for data in found[:trained]:
        group = read(data, vocabulary=renderer.vocabulary)
        assert sorted(data["scores"]) == pytest.approx([WORTHLESS, WORTHLESS, WORTH, WORTH])
        check_rows(group, renderer)
    counted = [json.loads(line) for line in (tmp_path / "metrics" / LINES).read_text().splitlines()]
    assert any(values.get("train/mean_correctness") == pytest.approx(0.5) for values in counted)


def check_rows(group: ScoredGroup, renderer: Renderer) -> None:
    """Every turn is taught, the call of the tool and the end of the turn included."""
    for sequence in group.sequences:
        assert sequence.notes is not None
        assert sequence.rows is not None
        assert len(sequence.notes.turns) == 2
        called, done = (sequence.tokens[turn.begin : turn.end] for turn in sequence.notes.turns)
        assert renderer.decode(called).startswith('<tool_call>\n{"name": "write_file"')
        assert renderer.decode(done[:-1]) == "Done."
        assert {called[-1], done[-1]} <= renderer.end_ids
        taught = {at for at, row in enumerate(sequence.rows) if row is not None}
        assert taught == {at for turn in sequence.notes.turns for at in range(turn.begin, turn.end)}
