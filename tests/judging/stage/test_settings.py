"""Settings of the judge."""

from __future__ import annotations

import pytest

from afterwit.judging.settings import JudgeSettings


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"votes": 0}, "votes is 0, but must be at least 1"),
        ({"timeout_s": 0}, "timeout_s is 0, but must be above 0"),
        ({"temperature": 3}, "temperature is 3, but must be between 0 and 2"),
        ({"url": "localhost:8000", "model": "m"}, "must begin with http"),
        ({"url": "http://localhost:8000"}, "needs its model's name"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        JudgeSettings(**fields)
