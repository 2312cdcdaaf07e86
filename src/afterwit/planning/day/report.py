"""A day as text, for `afterwit plan --turns-per-day`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from afterwit.config import Settings
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.schedule import largest_batch
from afterwit.learning.settings import SERVER
from afterwit.planning.day.learning import Learning
from afterwit.planning.day.limits import Speed, learner_cards, limits, pace_of, seconds_of, version_bytes
from afterwit.planning.day.traffic import (
    Day,
    calls,
    days_kept,
    question_tokens,
    request_seconds,
    stored_bytes,
)
from afterwit.planning.plan import Models

GB = 1e9


SPEED = Speed()


SHARED = 0.5
"""Share of its time up to which a card may be busy with all parts together: assumed."""


def busy_share(day: Day, learning: Learning) -> float:
    """Of the fullest hour that the learner is at work, in its smallest whole updates."""
    turns = learning.settings.batch
    seconds = learning.pace.seconds(learning.tokens(day, day.peak, turns))
    return day.peak * day.learned / day.turns * seconds / turns


def learning_of(settings: Settings, models: Models, day: Day) -> Learning:
    """The learner of these settings on one card."""
    objective = settings.objective
    return Learning(
        settings=settings.learner,
        pace=pace_of(day, models.served.shape, SPEED),
        at_end=settings.judge.placement is Placement.END,
        reads_own=objective.beta > 0 and settings.learner.reference != SERVER,
    )


def day_report(settings: Settings, models: Models, day: Day, *, card_hour: float | None) -> str:
    """What the day asks of each part. `card_hour`: what an hour of a card costs, in any currency."""
    return "\n".join(_lines(settings, models, day, card_hour))


def _lines(settings: Settings, models: Models, day: Day, card_hour: float | None) -> Iterator[str]:
    learning, served = learning_of(settings, models, day), models.served
    updates = learning.run(day) if settings.learner.enabled else []
    stored = stored_bytes(day, settings.judge)
    written = len(updates) * version_bytes(served.shape, settings.learner.lora_rank, settings.learner.dtype)
    asked = calls(settings.judge) * question_tokens(day, settings.judge)
    yield (
        f"a day of {day.turns:,} turns, on paper: sessions of {day.session:.0f} turns, prompts of "
        f"{day.prompt:,.0f} tokens in the mean, {day.said} tokens sampled"
    )
    yield f"requests   {day.turns / 86_400:.3g} a second, {day.peak:.3g} in the fullest hour"
    yield f"gateway    {request_seconds(day) * day.peak:.2g} of a core in the fullest hour"
    kept = days_kept(day, settings.store.keep_gb, settings.store.keep_days)
    yield f"store      {stored * day.turns / GB:.2g} GB a day, {kept:.2g} days are kept"
    yield f"judge      {asked * day.turns / 1e6:,.0f} M tokens in, {_answered(day, settings):,.0f} M out"
    if updates:
        longest = max(updates, key=lambda update: update.seconds)
        share = sum(update.turns for update in updates) / day.learned
        yield (
            f"learner    on one card {len(updates):,} updates of at most {longest.turns} turns and "
            f"{longest.seconds:.0f} s, in which {share:.0%} of what was judged trains; versions write "
            f"{written / GB:,.0f} GB"
        )
    yield _cards(settings, models, day, learning, card_hour)
    yield "breaks first, of one of each part and at these settings:"
    for limit in limits(day, settings, served.shape, models.judge.shape, learning, SPEED):
        yield f"  at {limit.turns:>13,} turns a day: {limit.what} ({limit.then})"


def _answered(day: Day, settings: Settings) -> float:
    return calls(settings.judge) * day.answer * day.turns / 1e6


def _cards(settings: Settings, models: Models, day: Day, learning: Learning, card_hour: float | None) -> str:
    seconds = seconds_of(day, models.served.shape, models.judge.shape, settings.judge, SPEED)
    busy = {"serve": seconds.policy * day.peak, "judge": seconds.judge * day.peak}
    if settings.judge.url is None:
        busy = {"serve and judge": sum(busy.values())}
    needed = {what: max(1, math.ceil(share)) for what, share in busy.items()}
    if settings.learner.enabled:
        alone = busy_share(day, learning)
        learns = learner_cards(day, models.served.shape, SPEED, learning)
        if learns is None:
            return (
                f"cards      no number of them learns all of it in updates of at most "
                f"{largest_batch(settings.learner)} turns: raise learner.batch"
            )
        if not settings.placement.learner and sum(busy.values()) + alone <= SHARED:
            needed = {"serve, judge and learn": 1}
        else:
            needed["learn"] = learns
    said = ", ".join(f"{count} to {what}" for what, count in needed.items())
    hours = 24 * sum(needed.values())
    cost = "" if card_hour is None else f", {hours * card_hour:,.2f} a day"
    return f"cards      {said}, for the fullest hour: {hours} card hours a day{cost}"
