"""The page for users of OpenClaw-RL: all that it names exists, with the values that it gives."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from afterwit import recipes
from afterwit.cli.app import app
from afterwit.config import known_names, load

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "migrating.md").read_text(encoding="utf-8")
SPLITS = (DOCS / "scale.md").read_text(encoding="utf-8")
"""The page to which PAGE links for the launchers' splits over GPUs."""
NO_SETTING = "-"
SERVED = ["engine.kind=sglang"]
"""Their servers are SGLang; the settings of its section are those of the page."""
OTHERS = {
    "HINT_OPD_W_RL",
    "OPENCLAW_UPDATE_PRM_WEIGHTS",
    "HOST",
    "SGLANG_MAX_RUNNING_REQUESTS",
    "--save-interval 100",
    "--log-probs-chunk-size 1024",
    "MEM_FRACTION_STATIC",
}
"""Rows whose number belongs to their engine or to one experiment: no recipe sets it."""
LAUNCHERS = ("binary-rl", "opd", "opd-topk", "combine", "topk-select")
MEANT: dict[str, dict[str, dict[str, Any]]] = {
    "--advantage-estimator grpo": {"objective.objective": {"binary-rl": "rl"}},
    "--advantage-estimator on_policy_distillation": {"objective.objective": {"opd": "token_opd"}},
    "--loss-type custom_loss --custom-loss-function-path topk_distillation_loss...": {
        "objective.objective": {"opd-topk": "topk_distill"}
    },
    "--loss-type custom_loss --custom-loss-function-path combine_loss...": {
        "objective.objective": {"combine": "combine"}
    },
    "--loss-type custom_loss --custom-loss-function-path openclaw_topk_select_loss...": {
        "objective.objective": {"topk-select": "hybrid"}
    },
    "--disable-rewards-normalization": {"objective.baseline": dict.fromkeys(LAUNCHERS, "none")},
    "opd": {"objective.hint_selection": dict.fromkeys(("opd", "opd-topk", "combine"), "longest")},
    "OPENCLAW_TOPK_W_RL": {"objective.w_rl": {"topk-select": 1.0, "combine": 1.0}},
    "OPENCLAW_TOPK_W_OPD": {"objective.w_opd": {"topk-select": 1.0, "combine": 1.0}},
    "--eps-clip 0.2": {
        "objective.eps_lo": dict.fromkeys(("binary-rl", "combine", "topk-select"), 0.2),
        "objective.token_eps_lo": {"opd": 0.2},
    },
    "--eps-clip-high 0.28": {
        "objective.eps_hi": dict.fromkeys(("binary-rl", "combine", "topk-select"), 0.28),
        "objective.token_eps_hi": {"opd": 0.2, "": 0.2},
    },
    "--kl-loss-coef 0.0": {"objective.beta": dict.fromkeys(LAUNCHERS, 0.0) | {"": 0.1}},
    "--entropy-coef 0.00": {"objective.entropy_coef": dict.fromkeys(LAUNCHERS, 0.0)},
    "sum over samples / global batch size (slime's reducer)": {
        "objective.aggregation": dict.fromkeys(LAUNCHERS, "batch") | {"": "component"}
    },
    "one accepted vote keeps its hint (fixed)": {
        "judge.accept": dict.fromkeys(LAUNCHERS, "any") | {"": "majority"}
    },
    "hint after the last user message (fixed)": {"judge.placement": dict.fromkeys(LAUNCHERS, "last_user")},
    "no limit on the age of a sample": {"learner.max_staleness": {"": 16}},
    "--recompute-granularity full": {"learner.checkpointing": {"": None}},
    "--use-tis": {"objective.is_cap": {"": 2.0}},
    "OPENCLAW_TOPK_K": {"objective.k": {"topk-select": 4}},
    "--distill-topk 50": {"objective.k": {"opd-topk": 50}},
    "OPENCLAW_TOPK_SUBSET_MODE": {"objective.subset": {"topk-select": "student"}},
    "OPENCLAW_TOPK_HINT_SELECTION": {"objective.hint_selection": {"topk-select": "sequence_optimal"}},
    "OPENCLAW_TOPK_ADV_DIFF_CLIP": {"objective.logprob_diff_clip": {"topk-select": 1.0, "": 1.0}},
    "OPENCLAW_TOPK_MAX_CAND": {"judge.max_candidates": {"topk-select": 3}},
    "PRM_M": {"judge.votes": {"opd": 1, "combine": 1, "topk-select": 3, "binary-rl": 3}},
    "PRM_TEMPERATURE": {"judge.temperature": dict.fromkeys(LAUNCHERS, 0.6)},
    "PRM_MAX_NEW_TOKENS": {
        "judge.max_tokens": dict.fromkeys(("opd", "opd-topk", "combine", "topk-select"), 8192)
        | dict.fromkeys(("binary-rl", "lora", "8gpu-combine-lora", "4gpu-opd-topk-lora"), 4096)
        | {"": 1024}
    },
    "PRM_API_TIMEOUT": {"judge.timeout_s": {"": 120.0}},
    "OPENCLAW_COMBINE_OPD_TEACHER_SOURCE": {
        "learner.teacher": {"combine": "base", "8gpu-topk-select": "server"}
    },
    "PRM_TEACHER_LOAD": {"learner.teacher": {"opd": "base"}, "placement.teacher_model": {"": None}},
    "PRM_TEACHER_GPUS": {"placement.teacher": {}, "learner.teacher_device": {"": None}},
    "--rollout-batch-size 16": {
        "learner.batch": dict.fromkeys(("binary-rl", "opd", "combine", "topk-select"), 16)
        | {"opd-topk": 4, "": 4}
    },
    "TRAIN_EPOCHS": {"learner.epochs": {"topk-select": 1, "8gpu-combine-lora": 2}},
    "--lr 1e-5": {"learner.lr": {"binary-rl": 1e-5, "opd": 1e-5, "opd-topk": 1e-6, "lora": 1e-5}},
    "--weight-decay 0.1": {"learner.weight_decay": dict.fromkeys(LAUNCHERS, 0.1)},
    "--adam-beta1 0.9": {
        "learner.beta1": dict.fromkeys(LAUNCHERS, 0.9),
        "learner.beta2": dict.fromkeys(LAUNCHERS, 0.98),
    },
    "--clip-grad": {"learner.clip": dict.fromkeys(LAUNCHERS, 1.0)},
    "--use-lora": {"learner.lora_rank": {"lora": 16, "4gpu-opd-topk-lora": 16, "8gpu-combine-lora": 64}},
    "--lora-alpha 32": {
        "learner.lora_alpha": {"lora": 32.0, "4gpu-opd-topk-lora": 32.0, "8gpu-combine-lora": 64.0}
    },
    "PORT": {"serve.port": {"": 8720}},
    "--rollout-temperature 0.6": {"gateway.force_temperature": dict.fromkeys(LAUNCHERS, 0.6)},
    "--rollout-max-response-len 8192": {"gateway.max_tokens": dict.fromkeys(LAUNCHERS, 8192)},
    "--rollout-max-context-len 32768": {
        "engine.context_length": {},
        "placement.context": dict.fromkeys(("", *recipes.machines()), 32768),
    },
    "TOOL_CALL_PARSER": {"gateway.tool_call_parser": {"": "auto"}},
    "REF_LOAD": {"model": {}, "learner.reference": {"": "base"}},
    "USE_WANDB": {"tracking.trackers": {}, "tracking.project": {"": "afterwit"}},
    "NUM_GPUS": {
        "placement.learner": {},
        "placement.policy": {},
        "learner.processes": {},
    },
    "TP": {"engine.url": {}},
    "MAX_TOKENS_PER_GPU": {"learner.micro_batch_tokens": {"": None}},
}
"""Of each row that states a value: the settings it names, and their values in recipes, "" without one."""


def rows() -> list[tuple[str, str, str]]:
    """The three cells of every row that maps something."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    mapped = [row for row in cells if len(row) == 3 and row != ["theirs", "ours", "remarks"]]
    return [(theirs, ours, remarks) for theirs, ours, remarks in mapped if not theirs.startswith("---")]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def named(cell: str) -> list[str]:
    """Settings named in a cell, with or without a value: `section.name` or `section.name=value`."""
    return [part for part in code(cell) if re.match(r"[a-z_]+\.(?!json\b|toml\b)[a-z_0-9]+(=|\Z)", part)]


def test_every_line_of_the_tables_has_three_cells() -> None:
    tables = re.findall(r"(?m)^\| theirs \| ours \| remarks \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)", PAGE)
    assert sum(table.count("\n") for table in tables) == len(rows()) > 100


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_setting_it_names_exists(row: tuple[str, str, str]) -> None:
    ours = [part.partition("=")[0] for part in code(row[1])]
    also = [part.partition("=")[0] for part in named(row[2])]
    assert set(ours + also) <= set(known_names())


def test_every_value_it_gives_is_one_that_the_setting_takes(tmp_path: Path) -> None:
    for part in [part for row in rows() for cell in row[1:] for part in named(cell) if "=" in part]:
        section, _, name = part.partition("=")[0].partition(".")
        given = load(home=tmp_path, pairs=[part, *SERVED], environment={})
        written = part.partition("=")[2]
        got = getattr(getattr(given, section), name)
        assert (str(got) == written) or not isinstance(got, str), part


def value_of(setting: str, recipe: str, home: Path) -> Any:
    pairs = [] if recipe in recipes.machines() else SERVED
    found: Any = load(home=home, pairs=pairs, recipe=recipe or None, environment={})
    for name in setting.split("."):
        found = getattr(found, name)
    return found


def states(row: tuple[str, str, str], value: Any) -> bool:
    """Whether the row contains this value, as a number or a word."""
    said = re.findall(r"[\w.-]*\w", " ".join(row).replace(",", ""))
    if isinstance(value, str | bool):
        return {True: "on", False: "off"}.get(value, value) in said
    return any(re.fullmatch(r"[\d.]+(e-?\d+)?", word) and float(word) == value for word in said)


@pytest.mark.parametrize("first", MEANT)
def test_a_row_means_what_its_settings_do(first: str, tmp_path: Path) -> None:
    """The settings of the row are those, with the values that the row states in the recipes it is about."""
    (row,) = [row for row in rows() if first in (row[0], *code(row[0])[:1])]
    assert {part.partition("=")[0] for part in code(row[1])} == set(MEANT[first])
    for setting, values in MEANT[first].items():
        for recipe, value in values.items():
            assert value_of(setting, recipe, tmp_path) == value, (setting, recipe)
            assert value is None or states(row, value), (setting, value)


def test_a_setting_that_a_launchers_number_decides_has_that_number_checked() -> None:
    stated = [
        row
        for row in rows()
        if re.search(r"` \([\d.]+[,;)]|`--[a-z0-9-]+ [\d.e-]+`", row[0]) and code(row[1])
    ]
    assert [row[0] for row in stated if code(row[0])[0] not in (*MEANT, *OTHERS)] == []


def test_each_split_has_a_recipe_with_as_many_gpus_as_it_is_named_for(tmp_path: Path) -> None:
    shown = set(re.findall(r"`(\dgpu-[a-z-]+)`", SPLITS))
    assert shown == set(recipes.machines())
    for name in shown:
        assert load(home=tmp_path, recipe=name, environment={}).placement.gpus == int(name[0])


def test_the_page_is_read_in_one_sitting() -> None:
    assert len(PAGE.split()) <= 3000


def test_a_row_without_a_setting_says_so_by_a_dash() -> None:
    assert [row for row in rows() if not code(row[1]) and row[1] != NO_SETTING] == []


def test_nothing_of_theirs_is_mapped_twice() -> None:
    variables = [
        part for theirs, _, _ in rows() for part in code(theirs) if re.fullmatch(r"OPENCLAW_\w+", part)
    ]
    assert [name for name, times in Counter(variables).items() if times > 1] == []


def test_every_command_it_shows_is_one_of_ours() -> None:
    ours = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    ours |= {group.name for group in app.registered_groups if group.name}
    shown = set(re.findall(r"`afterwit ([a-z]+)", PAGE))
    assert shown <= ours


def test_every_recipe_it_names_takes_the_settings_given_with_it(tmp_path: Path) -> None:
    commands = re.findall(r"`([^`]*--recipe [^`]*)`", PAGE)
    for command in commands:
        words = command.split()
        after = [(word, words[at + 1]) for at, word in enumerate(words) if word in ("--recipe", "--set")]
        pairs = [value for option, value in after if option == "--set"]
        load(home=tmp_path, recipe=dict(after)["--recipe"], pairs=pairs, environment={})
    assert set(re.findall(r"--recipe ([a-z-]+)", PAGE)) == set(recipes.names())
