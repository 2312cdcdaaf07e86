import pytest

from afterwit.learner.schedule import LONGEST_RETRY_S, due, retry_in
from afterwit.learner.settings import LearnerSettings

SETTINGS = LearnerSettings(batch=16, min_batch=4, max_wait_s=1800)


@pytest.mark.parametrize(
    ("ready", "waited_s", "starts"),
    [(16, 0, True), (40, 0, True), (15, 0, False), (4, 1800, True), (4, 1799, False), (3, 1e9, False)],
)
def test_an_update_starts_with_a_full_batch_or_after_half_an_hour_with_four(
    ready: int, waited_s: float, starts: bool
) -> None:
    assert due(SETTINGS, ready=ready, waited_s=waited_s, patience_s=SETTINGS.max_wait_s) is starts


def test_retries_double_up_to_an_hour() -> None:
    waits = [retry_in(LearnerSettings(retry_s=30), attempts) for attempts in (0, 1, 2, 10, 10_000)]
    assert waits == [30, 60, 120, LONGEST_RETRY_S, LONGEST_RETRY_S]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"min_batch": 17},
        {"lr": 0.0},
        {"beta2": 1.0},
        {"teacher": "ema"},
        {"dtype": "float16"},
        {"max_staleness": -1},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LearnerSettings(**wrong)  # type: ignore[arg-type]
