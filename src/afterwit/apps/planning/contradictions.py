"""Settings that do not go together, or not with the cards there are."""

from __future__ import annotations

from collections.abc import Iterator

from afterwit.apps.config import Settings
from afterwit.apps.planning.model import Model
from afterwit.engines.server.settings import ServerSettings
from afterwit.learner.settings import SERVER


def contradictions(settings: Settings, model: Model, cards: int) -> Iterator[str]:
    """What the settings contradict each other in, or the number of cards; `model` is the served one."""
    placed, engine, learner = settings.placement, settings.engine, settings.learner
    if placed.cards > cards:
        yield (
            f"the placement has {placed.cards} cards (policy {placed.policy}, judge {placed.judge}, teacher "
            f"{placed.teacher}, learner {placed.learner}), but there are {cards}"
        )
    if isinstance(engine, ServerSettings):
        yield from _servers_apart(settings, engine, model)
    elif placed.policy != 1:
        yield (
            f"placement.policy is {placed.policy} cards, but the embedded engine sits on one: set "
            "placement.policy = 1, or engine.kind to vllm or sglang"
        )
    if placed.judge and (settings.judge.url is None or not settings.judge.enabled):
        yield (
            f"placement.judge is {placed.judge} cards, but no server judges: set judge.url, or "
            "placement.judge = 0"
        )
    if placed.teacher and (learner.teacher != SERVER or learner.teacher_url is None):
        yield (
            f"placement.teacher is {placed.teacher} cards, but no server of its own teaches: set "
            'learner.teacher = "server" and learner.teacher_url, or placement.teacher = 0'
        )
    if not learner.enabled:
        if placed.learner:
            yield f"placement.learner is {placed.learner} cards, but learner.enabled is false"
        return
    if learner.processes % learner.shards:
        yield f"learner.processes is {learner.processes}, which is no multiple of shards, {learner.shards}"
    if learner.processes != (placed.learner or 1):
        there = f"{placed.learner} cards" if placed.learner else "0, a share of the policy's card"
        yield (
            f"learner.processes is {learner.processes}, but placement.learner is {there}: each process needs "
            "a card of its own, so make them equal"
        )
    if not placed.policy and not placed.learner:
        yield "the learner has no card: placement.policy and placement.learner are 0"


def _servers_apart(settings: Settings, engine: ServerSettings, model: Model) -> Iterator[str]:
    policy, rank = settings.placement.policy, settings.learner.lora_rank
    if policy % len(engine.urls):
        yield (
            f"placement.policy is {policy} cards, which {len(engine.urls)} servers (engine.url) cannot share "
            "evenly"
        )
    elif policy and model.shape.heads % (over := policy // len(engine.urls)):
        yield (
            f"placement.policy gives a server {over} cards, which do not divide the model's "
            f"{model.shape.heads} heads: name more servers in engine.url"
        )
    if settings.learner.enabled and (engine.swap == "adapters") != (rank > 0):
        yield (
            f"engine.swap is {engine.swap!r}, but learner.lora_rank is {rank}: adapters need a rank above 0, "
            "whole weights need 0"
        )
