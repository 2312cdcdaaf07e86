"""Served models, health, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from afterwit import __version__
from afterwit.dialects.response import Usage
from afterwit.errors import RequestError, StoreError
from afterwit.gateway.auth import Permission
from afterwit.gateway.context import CALLER, Gateway
from afterwit.judging.check_stage import judge_shares
from afterwit.store import Counts, Pause, Status
from afterwit.tracking.values import Newest, newest

T = TypeVar("T")

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

PATIENCE_S = 2.0
"""Seconds that a probe waits for the store."""

ENGINE_DOWN_S = 30.0
"""Seconds for which a failed engine counts as down. Then requests find out whether it still is."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

GROUPS: Mapping[str, tuple[str, str, str]] = {
    "learner": ("afterwit_learner", "Metrics of the newest update.", "metric"),
    "time": ("afterwit_learner_seconds", "Seconds of the parts of the newest update.", "part"),
    "suite": ("afterwit_suite", "How much the newest update kept of what people approved.", "metric"),
    "judge": ("afterwit_judged", "Number and shares of the newest judged turns.", "metric"),
    "people": ("afterwit_people", "Number of the newest requests, and the share with a complaint.", "metric"),
}
"""Gauge, text and label of each group of values. Labels are names in the code."""


class Pages:
    """Endpoints that only read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def root(self, request: Request) -> Response:
        """Name and version, which some agents ask for first. A browser is redirected to the page."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/ui", status_code=303)
        return JSONResponse({"name": "afterwit", "version": __version__})

    async def models(self, request: Request) -> Response:
        names = self._gateway.names
        page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names], **page})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._gateway.names:
            raise RequestError(
                404, "model_not_found", f"The model {name!r} is not served here.", param="model"
            )
        return JSONResponse(self._model(name))

    async def alive(self, request: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether it serves, and the health of every stage for callers with the scope `read`."""
        caller = request.scope[CALLER]
        health = health_of(self._gateway, *await self._statuses())
        reads = caller is not None and caller.may(Permission.READ)
        return JSONResponse(health.to_dict(details=reads), status_code=200 if health.serving else 503)

    async def metrics(self, request: Request) -> Response:
        """Prometheus' exposition text."""
        request.scope[CALLER].require(Permission.READ)
        health = health_of(self._gateway, *await self._statuses())
        counts, shares, learned = await self._counts()
        text = self._gateway.metrics.scrape(
            in_flight=self._gateway.in_flight.count,
            version=self._gateway.engine.version,
            turns=_turns(counts),
            invalid_votes=counts.invalid_votes,
            stages=health.stages,
            judge=shares,
            learned=learned,
        )
        return Response(text, media_type=EXPOSITION)

    def _model(self, name: str) -> dict[str, Any]:
        """A model as the clients of every dialect read it."""
        length, started = self._gateway.engine.facts.context_length, int(self._gateway.started)
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "afterwit",
            "context_length": length,
            "max_model_len": length,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "max_input_tokens": length,
        }

    async def _statuses(self) -> tuple[list[Status] | StoreError, Pause | None]:
        try:
            return await self._gateway.read(
                lambda store: (store.statuses(), store.paused()), within_s=PATIENCE_S
            )
        except StoreError as error:
            return error, None

    async def _counts(self) -> tuple[Counts, Mapping[str, float], Newest]:
        """Counts, shares of the judge's last check, and the newest version; empty if the store fails."""
        try:
            return await self._gateway.read(
                lambda store: (store.counts(), judge_shares(store), newest(store)), within_s=PATIENCE_S
            )
        except StoreError:
            return Counts(), {}, Newest()


def _turns(counts: Counts) -> dict[tuple[str, str], int]:
    """(state, reason) -> count; the skipped ones by reason."""
    skipped = {("SKIPPED", str(reason)): count for reason, count in counts.reasons.items()}
    states = {(str(state), ""): count for state, count in counts.states.items() if state != "SKIPPED"}
    return states | skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`serving` is for load balancers: serving goes on while the learner is down."""

    serving: bool
    version: int
    stages: tuple[Status, ...]
    pause: Pause | None
    """A person's pause of learning."""

    def to_dict(self, *, details: bool) -> dict[str, Any]:
        """Without `details` only one word, because messages may name files and addresses."""
        healthy = all(status.ok for status in self.stages)
        word = ("ready" if healthy else "degraded") if self.serving else "not_serving"
        if not details:
            return {"status": word}
        stages = [
            {"stage": status.stage, "ok": status.ok, "message": status.message, "at": status.at}
            | ({"machine": status.machine} if status.machine else {})
            for status in self.stages
        ]
        return {"status": word, "version": self.version, "paused": _paused(self.pause), "stages": stages}


def _paused(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else {"since": pause.since, "words": pause.words}


def health_of(
    gateway: Gateway, statuses: Sequence[Status] | StoreError, pause: Pause | None = None
) -> Health:
    """The stages' reports and the gateway's own faults."""
    now = gateway.now()
    faults = {name: fault.message for name, fault in gateway.faults.items()}
    faults |= {f"{name} server": words for name, words in gateway.servers().items()}
    if (words := gateway.engine.fault or gateway.engine.reduced) is not None:
        faults["engine"] = words
    if isinstance(statuses, StoreError):
        faults.setdefault("store", f"The store does not answer: {statuses}")
        statuses = ()
    if gateway.in_flight.draining:
        faults["gateway"] = "Shutting down: running answers finish, new requests are refused."
    own = {name: Status(stage=name, ok=False, message=words, at=now) for name, words in faults.items()}
    fine = Status(stage="gateway", ok=True, message=f"{gateway.in_flight.count} answers under way.", at=now)
    stages = {"gateway": fine} | {status.name: status for status in statuses} | own
    return Health(
        serving=not gateway.in_flight.draining and not _engine_down(gateway, now),
        version=gateway.engine.version,
        pause=pause,
        stages=tuple(stages[name] for name in sorted(stages)),
    )


def _engine_down(gateway: Gateway, now: float) -> bool:
    fault = gateway.faults.get("engine")
    return gateway.engine.fault is not None or (fault is not None and now - fault.at < ENGINE_DOWN_S)


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
        self.first_token, self._response = (
            Histogram(name, text, buckets=SECONDS, registry=self.registry)
            for name, text in (
                ("afterwit_first_token_seconds", "Request to first token."),
                ("afterwit_response_seconds", "Request to the end of the response."),
            )
        )
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
        self._judge = self._gauge("afterwit_judge_share", "Shares from the checks of the judge.", "check")
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
