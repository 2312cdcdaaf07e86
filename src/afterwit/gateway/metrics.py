"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from afterwit.dialects.response import Usage
from afterwit.store import Status
from afterwit.tracking.values import Newest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

GROUPS: Mapping[str, tuple[str, str, str]] = {
    "learner": ("afterwit_learner", "What the newest update measured of itself, by metric.", "metric"),
    "time": ("afterwit_learner_seconds", "Where the newest update's time went, by part.", "part"),
    "suite": ("afterwit_suite", "What the newest update kept of what people approved.", "metric"),
    "judge": ("afterwit_judged", "Of the newest judged turns: how many, and shares.", "metric"),
    "people": (
        "afterwit_people",
        "Of the newest requests: how many, and the share with a complaint.",
        "metric",
    ),
}
"""For each group of values the gauge that shows it, its text and its label. Labels are names in the code."""


class Metrics:
    """One registry for each gateway: several may run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "afterwit_requests", "HTTP requests.", ("route", "status"), registry=self.registry
        )
        tokens = Counter("afterwit_tokens", "Tokens served.", ("kind",), registry=self.registry)
        self._prompt = tokens.labels("prompt")
        self._completion = tokens.labels("completion")
        self.first_token = self._histogram("afterwit_first_token_seconds", "Request to first token.")
        self._response = self._histogram("afterwit_response_seconds", "Request to the end of the response.")
        self.unrecorded = Counter(
            "afterwit_unrecorded_turns", "Turns served that the store refused.", registry=self.registry
        )
        self.client_left = Counter(
            "afterwit_clients_left", "Responses whose client went away.", registry=self.registry
        )
        self._in_flight = self._gauge("afterwit_choices_in_flight", "Choices being generated or waiting.")
        self._version = self._gauge("afterwit_weight_version", "The weight version being served.")
        self._turns = self._gauge("afterwit_turns", "Turns in the store.", "state", "reason")
        self._invalid_votes = self._gauge("afterwit_invalid_votes", "Stored votes that could not be used.")
        self._judge = self._gauge(
            "afterwit_judge_share", "Shares that tell how good the judge is, by check.", "check"
        )
        self._newest = self._gauge("afterwit_newest_version", "The newest weight version, served or not.")
        self._committed = self._gauge(
            "afterwit_newest_version_timestamp_seconds", "When it was committed, since the epoch; 0: never."
        )
        self._groups = {
            group: (self._gauge(name, text, label), label) for group, (name, text, label) in GROUPS.items()
        }
        self._stage = self._gauge("afterwit_stage_ok", "1 if the stage works everywhere, else 0.", "stage")

    def request(self, route: str, status: int) -> None:
        self._requests.labels(route, status).inc()

    def answered(self, usage: Usage, seconds: float) -> None:
        """A whole response was sent."""
        self._prompt.inc(usage.prompt)
        self._completion.inc(usage.completion)
        self._response.observe(seconds)

    def scrape(
        self,
        *,
        in_flight: int,
        version: int,
        turns: Mapping[tuple[str, str], int],
        invalid_votes: int,
        stages: Iterable[Status],
        judge: Mapping[str, float],
        learned: Newest,
    ) -> bytes:
        """The exposition text, with the gauges set to these values. `turns`: (state, reason) -> count."""
        self._judge.clear()
        for check, share in judge.items():
            self._judge.labels(check).set(share)
        self._set_learned(learned)
        self._invalid_votes.set(invalid_votes)
        self._in_flight.set(in_flight)
        self._version.set(version)
        self._turns.clear()
        for labels, count in turns.items():
            self._turns.labels(*labels).set(count)
        works: dict[str, bool] = {}
        for status in stages:
            works[status.stage] = works.get(status.stage, True) and status.ok
        for stage, ok in works.items():
            self._stage.labels(stage).set(int(ok))
        return generate_latest(self.registry)

    def _set_learned(self, learned: Newest) -> None:
        self._newest.set(learned.version)
        self._committed.set(learned.committed_at or 0.0)
        for gauge, _ in self._groups.values():
            gauge.clear()
        for name, value in learned.values.items():
            group, _, rest = name.partition("/")
            if group in self._groups:
                gauge, label = self._groups[group]
                gauge.labels(**{label: rest}).set(value)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=SECONDS, registry=self.registry)
