"""Settings and flags that slime's step would compute wrongly are refused by name."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import pytest

from afterwit.errors import SettingError
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit_hosts.slime.requirements import require_flags, require_settings

LEARNER = LearnerSettings(lora_rank=0, replay=0, teacher="server")
OBJECTIVE = ObjectiveSettings(beta=0.0)
FLAGS = {"rollout_batch_size": 16, "global_batch_size": 16, "loss_type": "custom_loss"}


def test_what_fits_is_taken() -> None:
    require_flags(Namespace(**FLAGS))
    require_settings(LEARNER, OBJECTIVE)
    require_settings(replace(LEARNER, teacher="base"), replace(OBJECTIVE, objective="rl"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"global_batch_size": 8}, "rollout_batch_size is 16 and its global_batch_size 8"),
        ({"context_parallel_size": 2}, "context_parallel_size is 2, but must be 1"),
        ({"calculate_per_token_loss": True}, "calculate_per_token_loss is True"),
        ({"loss_type": "policy_loss"}, "must be 'custom_loss': the loss is the plugin's"),
        ({"update_weight_transport": "nccl"}, "must be 'disk'"),
        ({"n_samples_per_prompt": 8}, "a live turn has no siblings"),
    ],
)
def test_a_flag_of_slimes_that_does_not_fit_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        require_flags(Namespace(**{**FLAGS, **changes}))


@pytest.mark.parametrize(
    ("learner", "objective", "words"),
    [
        ({"lora_rank": 16}, {}, "learner.lora_rank is 16"),
        ({"epochs": 2}, {}, "slime steps once"),
        ({"replay": 4}, {}, "learner.replay is 4"),
        ({}, {"beta": 0.1}, "objective.beta is 0.1"),
        ({}, {"entropy_coef": 0.01}, "objective.entropy_coef"),
        ({}, {"baseline": "running"}, "set it to 'none'"),
        ({"teacher": "base"}, {}, "learner.teacher is 'base'"),
        ({}, {"objective": "topk_distill"}, "cannot teach"),
    ],
)
def test_a_setting_of_the_homes_that_does_not_fit_is_refused(
    learner: dict[str, object], objective: dict[str, object], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        require_settings(replace(LEARNER, **learner), replace(OBJECTIVE, **objective))
