"""What learns: the trainer, and what feeds it, from the store or from an Atropos server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterwit.apps.build.home import versions_of
from afterwit.apps.build.owner import worker_name
from afterwit.apps.build.teacher import teacher_server
from afterwit.apps.config import Settings

if TYPE_CHECKING:
    from afterwit.learner.policy import Policy
    from afterwit.learner.ranks import Ranks
    from afterwit.learner.settings import LearnerSettings
    from afterwit.learner.trainer import Trainer
    from afterwit.stages.atropos.stage import Consumer
    from afterwit.stages.learn import Learn
    from afterwit.store import Store


def trainer_of(
    settings: Settings,
    home: Path,
    folder: Path,
    ranks: Ranks | None = None,
    kind: Callable[..., Trainer] | None = None,
) -> Trainer:
    """The learner's core. It loads the model when it is first asked for its policy.

    `ranks` are the learner's processes; None: there is one. `kind` makes the trainer, if it is not the
    learner's own.
    """
    from afterwit.learner.ranks import ALONE
    from afterwit.learner.trainer import Trainer
    from afterwit.wire.model_text.render import Renderer

    versions, renderer = versions_of(home, folder, settings.versions), Renderer.load(folder)
    more: dict[str, Any] = {
        "settings": learner_settings(settings.learner, home, folder),
        "objective": settings.objective,
        "placement": settings.judge.placement,
        "teacher": teacher_server(settings, folder),
        "ranks": ranks or ALONE,
    }
    return Trainer(versions, renderer, **more) if kind is None else kind(versions, renderer, **more)


def learner_settings(settings: LearnerSettings, home: Path, folder: Path) -> LearnerSettings:
    """The settings with folders in place of hub ids. SettingError if a tokenizer is not the model's."""
    from afterwit.apps.model import model_folder
    from afterwit.wire.model_text.same_tokenizer import require_same_tokenizer

    for name, value in settings.checkpoints.items():
        other = model_folder(value, home)
        require_same_tokenizer(folder, other, f"learner.{name}")
        settings = replace(settings, **{name: str(other)})  # type: ignore[arg-type]  # both are strings
    return settings


def base_policy(settings: Settings, home: Path, folder: Path) -> Policy:
    """The model before it learned anything, loaded as the learner loads it."""
    from afterwit.learner.policy import Policy

    return Policy.load(versions_of(home, folder, settings.versions), 0, settings.learner)


def learn_stage(settings: Settings, store: Store, trainer: Trainer) -> Learn:
    """The learn stage over a store."""
    from afterwit.stages.learn import Learn

    return Learn(store, trainer, owner=worker_name("learn"), promotion=settings.promotion)


def atropos_consumer(settings: Settings, store: Store, trainer: Trainer) -> Consumer:
    """What trains on the batches of an Atropos server; its health is the learn stage's."""
    from afterwit.stages.atropos.server import AtroposServer
    from afterwit.stages.atropos.stage import Consumer
    from afterwit.stages.learn.health import LearnHealth
    from afterwit.stages.paused import on_person

    server = AtroposServer(url=settings.atropos.url, timeout_s=settings.atropos.timeout_s)
    return Consumer(
        server,
        trainer,
        settings.atropos,
        now=time.time,
        report=LearnHealth(store, time.time).report,
        committed=lambda version: store.commit_version(version, now=time.time()),
        paused=lambda: None if (pause := store.paused()) is None else on_person(pause),
    )
