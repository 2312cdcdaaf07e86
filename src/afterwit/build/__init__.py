"""The only place that constructs: store, versions, engine, judge, learner, publisher, gateway.

Imports are inside the functions, so that a command loads only what it builds.
"""

from __future__ import annotations

from afterwit.build.home import (
    async_store,
    housekeeping_of,
    store_at,
    store_of_home,
    store_of_model,
    versions_of,
)
from afterwit.build.judging import (
    examiner_of,
    http_judge,
    judge_checks,
    judge_client,
    judge_stage,
)
from afterwit.build.learning import (
    base_policy,
    check_teacher,
    learn_stage,
    learner_settings,
    teacher_server,
    trainer_of,
)
from afterwit.build.serving import engine_of, follower_of, gateway_app, own_adapters_of, publisher_of
from afterwit.build.tracking import check_tracking, tracking_of

__all__ = [
    "async_store",
    "base_policy",
    "check_teacher",
    "check_tracking",
    "engine_of",
    "examiner_of",
    "follower_of",
    "gateway_app",
    "housekeeping_of",
    "http_judge",
    "judge_checks",
    "judge_client",
    "judge_stage",
    "learn_stage",
    "learner_settings",
    "own_adapters_of",
    "publisher_of",
    "store_at",
    "store_of_home",
    "store_of_model",
    "teacher_server",
    "tracking_of",
    "trainer_of",
    "versions_of",
]
