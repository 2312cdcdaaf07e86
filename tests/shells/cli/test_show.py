"""`afterwit show` prints what the turn taught, and the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit import build
from afterwit.cli.app import app
from afterwit.config import load
from afterwit.home.home import remember_model
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one trained turn and one that waits."""
    home, base = (
        tmp_path_factory.mktemp("home"),
        tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1),
    )
    remember_model(home, base)
    (home / "config.toml").write_text("[learner]\ndevice = 'cpu'\nbatch = 1\nmin_batch = 1\nlr = 0.01\n")
    settings, renderer = load(home=home), renderer_of(base)
    store = build.store_of_model(settings, home, base)
    store_judged(store, [a_sample(renderer, 0)])
    build.learn_stage(settings, store, build.trainer_of(settings, home, base)).run(
        lambda: False, follow=False
    )
    store_judged(store, [a_sample(renderer, 1)])
    store.close()
    return home


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ("turn0000", "What it taught in version 1, computed again with version 0's weights."),
        ("turn0001", "What it would teach now, with the weights of version 1."),
    ],
)
def test_a_turn_is_shown_with_what_the_update_computed(home: Path, turn: str, said: str) -> None:
    shown = CliRunner().invoke(app, ["show", turn, "--home", str(home)])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert said in text
    assert "Objective hybrid, teacher base, sequence_optimal hint, K = 4 (student)" in text
    assert "advantages: rl" in text
    assert "advantages: opd" in text
    assert "hint of 6 of 6 tokens" in text
