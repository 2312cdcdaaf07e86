"""Served models, health, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from afterwit import __version__
from afterwit.errors import RequestError, StoreError
from afterwit.gateway.auth import Permission
from afterwit.gateway.context import CALLER, Gateway
from afterwit.judging.ability import judge_shares
from afterwit.store import Counts, Pause, Status
from afterwit.text import counted
from afterwit.tracking.values import Newest, newest

Gauged = dict[tuple[str, ...], float]

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

PATIENCE_S = 2.0
"""Seconds that a probe waits for the store."""

ENGINE_DOWN_S = 30.0
"""Seconds for which a failed engine counts as down. Then requests find out whether it still is."""

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
        """Whether it serves, in one word; for callers with the scope `read` the health of every stage too,
        because messages may name files and addresses."""
        caller, gateway = request.scope[CALLER], self._gateway
        serving, stages, pause = await self._health()
        word = "not_serving"
        if serving:
            word = "ready" if all(stage.ok for stage in stages) else "degraded"
        body: dict[str, Any] = {"status": word}
        if caller is not None and caller.may(Permission.READ):
            body["version"] = gateway.engine.version
            body["paused"] = None if pause is None else {"since": pause.since, "words": pause.words}
            body["stages"] = [
                {"stage": stage.stage, "ok": stage.ok, "message": stage.message, "at": stage.at}
                | ({"machine": stage.machine} if stage.machine else {})
                for stage in stages
            ]
        return JSONResponse(body, status_code=200 if serving else 503)

    async def metrics(self, request: Request) -> Response:
        """Prometheus' exposition text; what the store counts is left out if it does not answer."""
        request.scope[CALLER].require(Permission.READ)
        gateway = self._gateway
        _, stages, _ = await self._health()
        found: tuple[Counts, Mapping[str, float], Newest] = (Counts(), {}, (None, {}))
        with suppress(StoreError):
            found = await gateway.read(
                lambda store: (store.counts(), judge_shares(store), newest(store)), within_s=PATIENCE_S
            )
        counts, shares, (latest, learned) = found
        gauges = CollectorRegistry()

        def gauge(name: str, text: str, values: Gauged, *labels: str) -> None:
            made = Gauge(name, text, labels, registry=gauges)
            for each, value in values.items():
                (made.labels(*each) if labels else made).set(value)

        in_flight, version = gateway.in_flight.count, gateway.engine.version
        gauge("afterwit_choices_in_flight", "Choices being generated or waiting.", {(): in_flight})
        gauge("afterwit_weight_version", "The weight version being served.", {(): version})
        turns: Gauged = {
            (str(state), ""): count for state, count in counts.states.items() if state != "SKIPPED"
        }
        turns |= {("SKIPPED", str(reason)): count for reason, count in counts.reasons.items()}
        gauge("afterwit_turns", "Turns in the store.", turns, "state", "reason")
        gauge("afterwit_invalid_votes", "Stored votes that could not be used.", {(): counts.invalid_votes})
        checks: Gauged = {(check,): share for check, share in shares.items()}
        gauge("afterwit_judge_share", "Shares from the checks of the judge.", checks, "check")
        number, committed_at = (latest.number, latest.committed_at) if latest else (0, 0.0)
        gauge("afterwit_newest_version", "The newest weight version, served or not.", {(): number})
        text = "When it was committed, since the epoch; 0: never."
        gauge("afterwit_newest_version_timestamp_seconds", text, {(): committed_at})
        for group, (name, text, label) in GROUPS.items():
            begins = f"{group}/"
            own = {each: value for each, value in learned.items() if each.startswith(begins)}
            gauge(name, text, {(each.removeprefix(begins),): value for each, value in own.items()}, label)
        works: Gauged = {}
        for stage in stages:
            works[stage.stage,] = min(works.get((stage.stage,), 1), int(stage.ok))
        gauge("afterwit_stage_ok", "1 if the stage works everywhere, else 0.", works, "stage")
        scraped = generate_latest(gateway.metrics.registry) + generate_latest(gauges)
        return Response(scraped, media_type=EXPOSITION)

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
            "lifecycle": "active",
            "max_input_tokens": length,
        }

    async def _health(self) -> tuple[bool, list[Status], Pause | None]:
        """Whether it serves, the stages' health, and a person's pause of learning.

        Serving goes on while the learner is down, and for load balancers a failed engine is down for
        `ENGINE_DOWN_S` only, a full disk for as long as requests are refused.
        """
        gateway, now, pause = self._gateway, self._gateway.now(), None
        try:
            statuses, pause = await gateway.read(
                lambda store: (store.statuses(), store.paused()), within_s=PATIENCE_S
            )
            stages = stages_of(gateway, statuses)
        except StoreError as error:
            stages = stages_of(gateway, error)
        fault = gateway.faults.get("engine")
        failed = gateway.engine.fault is not None or (fault is not None and now - fault.at < ENGINE_DOWN_S)
        return not (gateway.in_flight.draining or failed or gateway.backlog.full), stages, pause


def stages_of(gateway: Gateway, statuses: Sequence[Status] | StoreError) -> list[Status]:
    """The stages' reports and the gateway's own faults, by name."""
    now = gateway.now()
    faults = {name: fault.message for name, fault in gateway.faults.items()}
    if gateway.backlog:
        faults["store"] = f"{faults.get('store', 'Turns wait to be recorded')} ({gateway.backlog})"
    if gateway.backlog.full is not None:
        faults["store"] = f"Requests are refused: {gateway.backlog.full}"
    faults |= {f"{name} server": words for name, words in gateway.servers().items()}
    if (words := gateway.engine.fault or gateway.engine.reduced) is not None:
        faults["engine"] = words
    if isinstance(statuses, StoreError):
        faults.setdefault("store", f"The store does not answer: {statuses}")
        statuses = ()
    if gateway.in_flight.draining:
        faults["gateway"] = "Shutting down: running answers finish, new requests are refused."
    own = {name: Status(stage=name, ok=False, message=words, at=now) for name, words in faults.items()}
    running = f"{counted(gateway.in_flight.count, 'answer')} under way."
    fine = Status(stage="gateway", ok=True, message=running, at=now)
    stages = {"gateway": fine} | {status.name: status for status in statuses} | own
    return [stages[name] for name in sorted(stages)]
