"""slime's own contract tests and its own loss function run the plugin, if SLIME_CHECKOUT is set."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.engines.model_files import fingerprint
from afterwit.engines.teacher import given_ids
from afterwit.objective.sample import denominators, prepare, sample_loss
from afterwit.store.sqlite import SqliteStore
from plugins.hosts.tests.slime.checkout import require_checkout
from plugins.hosts.tests.slime.in_slime import Likeliest, logits_of, through_slime
from plugins.hosts.tests.slime.lessons import OBJECTIVES, made
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.renderers import renderer_of
from tests.learning.test_served_teacher import batch
from tests.several import several

pytestmark = pytest.mark.cluster
RUN = "import runpy, sys, transformers; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
"""The contract tests put a stand-in for transformers in place, unless it is there already."""
CONVERT = "afterwit_hosts.slime.rollout.convert_samples_to_train_data"
PATHS = {
    "test_plugin_rollout_contracts.py": {
        "rollout-function-path": "afterwit_hosts.slime.rollout.generate_rollout"
    },
    "test_plugin_path_loading_contracts.py": {
        "data-source-path": "afterwit_hosts.slime.rollout.Turns",
        "eval-function-path": "afterwit_hosts.slime.rollout.generate_rollout",
    },
    "test_plugin_runtime_hook_contracts.py": {
        "custom-convert-samples-to-train-data-path": CONVERT,
        "rollout-data-postprocess-path": "plugins.hosts.tests.slime.marked.postprocess",
    },
}


@pytest.fixture
def home(base: Path, tmp_path: Path) -> Path:
    """A home with turns that need no teacher."""
    (tmp_path / "config.toml").write_text(f'model = "{base}"\n[objective]\nobjective = "rl"\n')
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=fingerprint(base))
    store_judged(store, [a_sample(renderer_of(base), number) for number in range(4)])
    store.close()
    return tmp_path


@pytest.mark.parametrize("file", PATHS)
def test_slimes_own_contract_tests_take_the_plugin(home: Path, file: str) -> None:
    checkout = require_checkout()
    flags = [word for name, path in PATHS[file].items() for word in (f"--{name}", path)]
    places = os.pathsep.join([str(checkout / "tests/plugin_contracts"), *sys.path])
    environment = {**os.environ, "AFTERWIT_HOME": str(home), "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, "-c", RUN, f"tests/plugin_contracts/{file}", *flags, "-p", "no:cacheprovider"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_batch_of_turns_goes_from_the_home_to_the_loss(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_checkout()
    monkeypatch.setenv("AFTERWIT_HOME", str(home))
    from argparse import Namespace

    from afterwit_hosts.slime.rollout import Turns, convert_samples_to_train_data, generate_rollout
    from afterwit_hosts.slime.training import lesson_of, postprocess

    args = Namespace(rollout_batch_size=3, global_batch_size=3)
    source = Turns(args)
    output = generate_rollout(args, 0, source)
    columns = convert_samples_to_train_data(args, output.samples)
    tokens = [torch.tensor(each) for each in columns["tokens"]]
    rollout = {"tokens": tokens, "prompt": columns.pop("prompt")}
    postprocess(args, 0, rollout)
    for each, length, mask in zip(tokens, columns["response_lengths"], columns["loss_masks"], strict=True):
        item = lesson_of(each).item
        assert (*item.student.prompt, *item.student.response) == tuple(each.tolist())
        assert len(item.student.response) == len(mask) == length
    judged = generate_rollout(args, 0, source, evaluation=True).data["judged"]
    assert judged["rewards"] == [-1.0, -1.0, -1.0]
    assert len(source) == 1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_slimes_loss_function_gives_our_loss_and_gradient(
    base: Path, renderer: Renderer, processes: ForkServerContext, name: str
) -> None:
    checkout, objective = require_checkout(), OBJECTIVES[name]
    items = batch(renderer, objective)
    lessons = made(items, objective, Likeliest(given_ids(objective)), base)
    outcomes = several(processes, 2, through_slime, checkout, lessons)
    known = lessons[0].batch.vocabulary
    whole = [logits_of(item.student).double().requires_grad_() for item in items]
    samples = [lesson.sample(whole[0]) for lesson in lessons]
    over = denominators(samples, objective)
    loss = torch.zeros((), dtype=torch.float64)
    for logits, item, sample in zip(whole, items, samples, strict=True):
        logits_TV = logits[item.student.first : -1, :known]
        target = prepare(sample, logits_TV.detach(), (), objective)
        loss = loss + sample_loss(logits_TV, sample, target, over, objective).loss
    loss.backward()
    for outcome in outcomes:
        assert not isinstance(outcome, Exception), outcome
        theirs, gradients, logged = outcome
        assert theirs == pytest.approx(loss.item(), abs=1e-5)
        assert logged["loss"] == pytest.approx(loss.item(), abs=1e-5)
        for gradient, logits in zip(gradients, whole, strict=True):
            assert float((gradient - logits.grad).abs().max()) < 1e-6
