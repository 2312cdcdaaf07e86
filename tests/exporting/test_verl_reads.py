"""verl reads what is exported for it. It is of no extra: without it these tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.exporting.formats import FORMATS
from tests.exporting.examples import HINT, an_example
from tests.fakes.models import tiny_qwen3

pytestmark = pytest.mark.slow
pytest.importorskip("verl")
datasets = pytest.importorskip("datasets")

EXAMPLES = [an_example("wrong", -1, hint=HINT), an_example("right", 1)]


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    """As on the page on exporting: JSON lines, then Parquet."""
    lines = tmp_path / "samples.jsonl"
    lines.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in FORMATS["verl"](EXAMPLES)))
    data = datasets.load_dataset("json", data_files=str(lines), cache_dir=str(tmp_path / "cache"))["train"]
    data.to_parquet(str(tmp_path / "samples.parquet"))
    return data


def test_its_data_set_takes_the_prompts(rows: Any, tmp_path: Path) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    model = tiny_qwen3(tmp_path / "model")
    config = OmegaConf.create(
        {"max_prompt_length": 512, "return_raw_chat": True, "cache_dir": str(tmp_path / "verl")}
    )
    found = RLHFDataset(str(tmp_path / "samples.parquet"), AutoTokenizer.from_pretrained(model), config)
    assert len(found) == len(EXAMPLES)
    renderer = Renderer.load(model)
    for row, example in zip((found[at] for at in range(len(found))), EXAMPLES, strict=True):
        conversation = example.turn.conversation
        expected = [{"role": each.role, "content": each.content} for each in conversation.messages]
        assert [dict(message) for message in row["raw_prompt"]] == expected
        assert row["reward_model"]["style"]
        assert renderer.prompt_ids(conversation)


def test_its_batches_hold_the_columns_and_its_loss_reads_them(rows: Any) -> None:
    """One batch padded as on the page; verl's own policy loss at the recorded log-probs has ratio 1."""
    import torch
    from omegaconf import OmegaConf
    from verl.protocol import DataProto
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    width = max(len(row["responses"]) for row in rows)
    longest = max(len(row["prompts"]) for row in rows)
    columns = ("responses", "response_mask", "rollout_log_probs", "token_level_scores", "advantages")
    tensors = {
        name: torch.tensor([[*row[name], *[0] * (width - len(row[name]))] for row in rows])
        for name in columns
    }
    prompts = [[*[0] * (longest - len(row["prompts"])), *row["prompts"]] for row in rows]
    batch = DataProto.from_dict(tensors | {"prompts": torch.tensor(prompts)})
    assert len(batch) == len(EXAMPLES)
    assert batch.batch["token_level_scores"].sum(dim=-1).tolist() == [-1.0, 1.0]

    settings = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0}
    old = batch.batch["rollout_log_probs"].float()
    loss, metrics = compute_policy_loss_vanilla(
        old,
        old.clone(),
        batch.batch["advantages"].float(),
        batch.batch["response_mask"],
        config=OmegaConf.create(settings | {"global_batch_info": {}}),
    )[:2]
    mask = batch.batch["response_mask"].float()
    expected = -(batch.batch["advantages"] * mask).sum() / mask.sum()
    assert loss.item() == pytest.approx(expected.item())
    assert metrics
