"""`--rollout-function-path`: nothing is generated. People have talked to the model already."""

from __future__ import annotations

from typing import Any

from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.utils.types import Sample

from afterwit_hosts.slime.requirements import require_flags


def generate_rollout(
    args: Any, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """A batch of the data source, as it is; to evaluate, the rewards of the turns that were judged last.

    SettingError if an argument of slime's does not fit: nothing has been trained then.
    """
    require_flags(args)
    size = getattr(args, "rollout_batch_size", 1)
    if not evaluation:
        return RolloutFnTrainOutput(samples=data_source.get_samples(size))
    groups = getattr(data_source, "newest", data_source.get_samples)(size)
    samples = [sample for group in groups for sample in group]
    judged = {
        "rewards": [sample.reward for sample in samples],
        "truncated": [sample.status is Sample.Status.TRUNCATED for sample in samples],
        "samples": samples,
    }
    return RolloutFnEvalOutput(data={"judged": judged})
