"""TRL reads what is exported for it. It is of the extra `bench`; without it these tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.exporting.examples import LeftOut
from afterwit.exporting.formats import FORMATS
from afterwit.turn import Conversation, Message
from tests.exporting.examples import HINT, an_example, asked
from tests.fakes.models import tiny_qwen3

pytestmark = pytest.mark.slow

TOOLS = ({"type": "function", "function": {"name": "open", "parameters": {"type": "object"}}},)
WITH_TOOLS = Conversation(messages=(Message(role="user", content="Open it."),), tools=TOOLS)
EXAMPLES = [
    an_example("wrong", -1, hint=HINT, conversation=WITH_TOOLS),
    an_example("right", 1, parent="wrong", conversation=asked("Open it. Not that one.")),
    an_example("good", 1, hint=HINT, conversation=WITH_TOOLS),
    an_example("unclear", 0, hint=HINT),
]


@pytest.fixture(scope="module")
def trl() -> Any:
    """Takes seconds to import, which a process without these tests saves."""
    return pytest.importorskip("trl")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"))


def read(format: str, folder: Path) -> Any:
    """The rows as a data set, through a file."""
    datasets = pytest.importorskip("datasets")
    path = folder / f"{format}.jsonl"
    rows = [row for row in FORMATS[format](EXAMPLES) if not isinstance(row, LeftOut)]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return datasets.load_dataset("json", data_files=str(path), cache_dir=str(folder / "cache"))["train"]


def arguments(kind: Any, folder: Path) -> Any:
    return kind(output_dir=str(folder / "out"), report_to=[], use_cpu=True, bf16=False, max_length=None)


def test_what_sft_trains_on_begins_with_the_very_prompt(trl: Any, model: Path, tmp_path: Path) -> None:
    renderer, data = Renderer.load(model), read("sft", tmp_path)
    trainer = trl.SFTTrainer(str(model), args=arguments(trl.SFTConfig, tmp_path), train_dataset=data)
    by_id = {example.turn.id: example for example in EXAMPLES}
    assert len(trainer.train_dataset) == 3
    for row, read_row in zip(data, trainer.train_dataset, strict=True):
        prompt = renderer.prompt_ids(by_id[row["turn"]].turn.conversation)
        assert tuple(read_row["input_ids"][: len(prompt)]) == prompt


def test_dpo_takes_the_pairs(trl: Any, model: Path, tmp_path: Path) -> None:
    trainer = trl.DPOTrainer(
        str(model), args=arguments(trl.DPOConfig, tmp_path), train_dataset=read("dpo", tmp_path)
    )
    assert len(trainer.train_dataset) == 2


def test_kto_takes_the_samples_that_have_a_label(trl: Any, model: Path, tmp_path: Path) -> None:
    data = read("trl", tmp_path).filter(lambda row: row["label"] is not None)
    trainer = trl.KTOTrainer(str(model), args=arguments(trl.KTOConfig, tmp_path), train_dataset=data)
    assert sorted(trainer.train_dataset["label"]) == [False, True, True]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_a_data_set_that_goes_through_parquet(format: str, tmp_path: Path) -> None:
    data = read(format, tmp_path)
    data.to_parquet(str(tmp_path / "rows.parquet"))
    again = data.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    assert len(again) == len(data) > 0
    assert again[0] == data[0]
