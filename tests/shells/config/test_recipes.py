"""Each recipe sets all that was published, whatever the defaults are."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import afterwit
from afterwit import config, recipes
from afterwit.cli.app import main
from afterwit.config import Settings
from afterwit.demo.settings import choose
from afterwit.demo.worlds import WORLDS
from afterwit.errors import SettingError
from afterwit.verdict import Review

NOWHERE = Path("/nonexistent")
ALIKE: dict[str, Any] = {
    "gateway.force_temperature": 0.6,
    "gateway.max_tokens": 8192,
    "judge.temperature": 0.6,
    "judge.accept": "any",
    "judge.verify": "off",
    "judge.mode": "write",
    "judge.follow_tries": 0,
    "judge.pay_repeats": True,
    "judge.max_candidates": 3,
    "judge.placement": "last_user",
    "objective.beta": 0.0,
    "objective.entropy_coef": 0.0,
    "objective.aggregation": "batch",
    "objective.routing": "all",
    "learner.beta1": 0.9,
    "learner.beta2": 0.98,
    "learner.adam_eps": 0.0,
    "learner.weight_decay": 0.1,
    "learner.clip": 1.0,
    "learner.epochs": 1,
    "learner.batches_per_update": 1,
    "learner.turns_per_session_per_update": 1,
    "learner.replay": 0,
    "learner.stop_at_teacher": False,
    "learner.update_gate": False,
    "learner.review": Review.OFF,
    "learner.tool_hints": True,
    "learner.source_share": 1.0,
    "learner.max_tokens": 32_768,
    "promotion.enabled": False,
    "practice.enabled": False,
}
COLUMNS = (
    "objective.objective",
    "learner.lr",
    "learner.batch",
    "learner.min_batch",
    "judge.votes",
    "learner.lora_rank",
)
PUBLISHED: dict[str, tuple[Any, ...]] = {
    "binary-rl": ("rl", 1e-5, 16, 16, 3, 0),
    "opd": ("token_opd", 1e-5, 16, 16, 1, 0),
    "opd-topk": ("topk_distill", 1e-6, 4, 4, 3, 0),
    "combine": ("combine", 1e-5, 16, 16, 1, 0),
    "topk-select": ("hybrid", 1e-5, 16, 16, 3, 0),
    "lora": ("rl", 1e-5, 16, 16, 3, 16),
}
RATED = {"judge.max_tokens": 4096}
HINTED = {"judge.max_tokens": 8192}
CLIPPED = {
    "objective.w_rl": 1.0,
    "objective.baseline": "none",
    "objective.eps_lo": 0.2,
    "objective.eps_hi": 0.28,
}
TAUGHT = {"objective.w_opd": 1.0, "learner.teacher": "base"}
OWN: dict[str, dict[str, Any]] = {
    "binary-rl": CLIPPED | RATED,
    "opd": TAUGHT
    | HINTED
    | {"objective.hint_selection": "longest", "objective.token_eps_lo": 0.2, "objective.token_eps_hi": 0.2},
    "opd-topk": TAUGHT | HINTED | {"objective.k": 50, "objective.hint_selection": "longest"},
    "combine": CLIPPED | TAUGHT | HINTED | {"objective.hint_selection": "longest"},
    "topk-select": CLIPPED
    | TAUGHT
    | HINTED
    | {
        "objective.k": 4,
        "objective.subset": "student",
        "objective.hint_selection": "sequence_optimal",
        "objective.logprob_diff_clip": 1.0,
        "objective.tail_bucket": False,
    },
    "lora": CLIPPED | RATED | {"learner.lora_alpha": 32.0},
}


KEPT = ("redaction", "learner.max_staleness", "objective.is_cap", "judge.quote_words", "judge.thinking")
"""Departures from what was published, which every recipe and the page for those who come from there name."""
MACHINERY = {
    "judge": "enabled client url model api_key_env weights prompts calibrate check_every_s context_chars "
    "tools_chars response_chars next_state_chars max_concurrency max_turns timeout_s attempts "
    "retry_base_s retry_max_s poll_s lease_s body_extra body_omit siblings",
    "objective": "confident_above baseline_decay",
    "learner": "enabled adapters shared_keys teaches max_wait_s source_turns_a_day teacher_url "
    "hours teacher_key_env teacher_device reference reference_device reference_reads_hints "
    "ema_decay practice_epochs practice_step max_move micro_batch_tokens "
    "packing loss_backend checkpointing device dtype threads measure_effects keep_versions "
    "mismatch_alarm poll_s processes shards patience_s lease_s retry_s max_attempts",
    "promotion": "may_lose hold_at per_kind per_source share_of_update may_end_badly alarm_at confirm_after "
    "no_end_s",
}
"""Settings that change nothing of a published method: where and how fast it runs, what it shows its judge,
and details of what a recipe leaves off or out."""


def _written(name: str) -> dict[str, Any]:
    """A recipe's own lines, by dotted name."""
    tree = tomllib.loads((recipes.FOLDER / f"{name}.toml").read_text())
    return {f"{section}.{key}": value for section, values in tree.items() for key, value in values.items()}


def _of(settings: Settings, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)


def test_the_package_holds_the_six_published_recipes() -> None:
    assert set(recipes.names()) == set(PUBLISHED)
    assert Path(afterwit.__file__).parent / "recipes" == recipes.FOLDER


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_recipe_is_exactly_what_was_published_and_says_it_itself(name: str) -> None:
    published = ALIKE | dict(zip(COLUMNS, PUBLISHED[name], strict=True)) | OWN[name]
    assert _written(name) == published
    settings = config.load(home=NOWHERE, recipe=name, environment={})
    assert {key: _of(settings, key) for key in published} == published


def test_every_setting_of_learning_is_in_a_recipe_or_named_as_kept() -> None:
    """A new setting belongs into the recipes with its published value, or into one of the two lists above."""
    stated = {key for name in PUBLISHED for key in _written(name)} | set(KEPT)
    known = {f"{section}.{key}" for section, keys in MACHINERY.items() for key in keys.split()}
    settings = {
        f"{section}.{each.name}"
        for section in MACHINERY
        for each in fields(getattr(config.Settings(), section))
    }
    assert settings - stated == known


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_recipe_and_the_page_name_what_stays_unpublished(name: str) -> None:
    recipe = (recipes.FOLDER / f"{name}.toml").read_text()
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text().lower()
    assert [kept for kept in KEPT if kept not in recipe or kept not in page] == []


@pytest.mark.parametrize("name", recipes.machines())
def test_a_recipe_on_a_machine_is_the_published_one_but_for_how_it_is_divided(name: str) -> None:
    divided = tomllib.loads((recipes.MACHINES / f"{name}.toml").read_text())
    own = {f"{part}.{key}" for part in divided.keys() - {"recipe"} for key in divided[part]}
    assert not [key for key in own if key.startswith("objective.")]
    settings = config.load(home=NOWHERE, recipe=name, environment={})
    published = {key: value for key, value in _written(divided["recipe"]).items() if key not in own}
    assert {key: _of(settings, key) for key in published} == published
    assert settings.placement.learner == settings.learner.processes


def test_a_demo_takes_no_recipe_for_a_machine_with_cards(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--recipe", "4gpu-lora"])
    assert "4gpu-lora is for a machine with GPUs" in capsys.readouterr().err


def test_a_persons_file_and_flags_win_over_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[learner]\nlr = 3e-5\n[judge]\nvotes = 5\n")
    loaded = config.load(home=tmp_path, recipe="topk-select", pairs=["judge.votes=7"], environment={})
    assert (loaded.learner.lr, loaded.judge.votes, loaded.objective.beta) == (3e-5, 7, 0.0)


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"--recipe top-select: .* did you mean topk-select"):
        config.load(home=NOWHERE, recipe="top-select", environment={})


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_demo_keeps_what_is_learned_and_says_every_setting_it_replaced(name: str) -> None:
    chosen = choose(WORLDS["tools"], NOWHERE, recipe=name)
    replaced = chosen.overrides
    published = config.load(home=NOWHERE, recipe=name, environment={})
    for key in _written(name):
        before, here = _of(published, key), _of(chosen.settings, key)
        assert before == here or replaced[key] == (before, here), key
    assert not [key for key in replaced if key.startswith(("objective.", "judge.votes", "learner.lora_"))]
    assert replaced["learner.lr"][0] == published.learner.lr
    assert chosen.settings.objective == published.objective
