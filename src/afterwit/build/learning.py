"""What learns: the trainer, and what feeds it, from the store or from an Atropos server."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterwit.build.home import versions_of, worker_name
from afterwit.config import Settings
from afterwit.errors import SettingError

if TYPE_CHECKING:
    from afterwit.learning.distributed.ranks import Ranks
    from afterwit.learning.policy import Policy
    from afterwit.learning.settings import LearnerSettings
    from afterwit.learning.stage import Learn
    from afterwit.learning.trainer import Trainer
    from afterwit.store import Store
    from afterwit.teacher import TeacherServer


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
    from afterwit.chat_format.render import Renderer
    from afterwit.learning.distributed.ranks import ALONE
    from afterwit.learning.trainer import Trainer

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
    from afterwit.chat_format.render import require_same_tokenizer
    from afterwit.home.model import model_folder

    for name, value in settings.checkpoints.items():
        other = model_folder(value, home)
        require_same_tokenizer(folder, other, f"learner.{name}")
        settings = replace(settings, **{name: str(other)})  # type: ignore[arg-type]  # both are strings
    return settings


def base_policy(settings: Settings, home: Path, folder: Path) -> Policy:
    """The model before it learned anything, loaded as the learner loads it."""
    from afterwit.learning.policy import Policy

    return Policy.load(versions_of(home, folder, settings.versions), 0, settings.learner)


def learn_stage(settings: Settings, store: Store, trainer: Trainer) -> Learn:
    """The learn stage over a store."""
    from afterwit.learning.stage import Learn

    return Learn(store, trainer, owner=worker_name("learn"), promotion=settings.promotion)


def teacher_server(settings: Settings, folder: Path) -> TeacherServer | None:
    """The server that `learner.teacher = "server"` names, not asked yet; None for any other teacher.

    SettingError if the settings name none whose weights stay what they are.
    """
    from afterwit.engines.server.settings import ServerSettings
    from afterwit.engines.teacher import ServedTeacher
    from afterwit.learning.settings import SERVER
    from afterwit.learning.teacher_scores import given_ids, told_ids

    engine, learner = settings.engine, settings.learner
    if learner.teacher != SERVER:
        return None
    waits = engine if isinstance(engine, ServerSettings) else ServerSettings()
    url, key = learner.teacher_url, _named_key("learner.teacher_key_env", learner.teacher_key_env)
    if url is None:
        if not isinstance(engine, ServerSettings):
            raise SettingError(
                'learner.teacher is "server", but the engine is embedded: set learner.teacher_url'
            )
        if engine.swap != "adapters":
            raise SettingError(
                f'learner.teacher is "server", but with engine.swap = "{engine.swap}" the weights at '
                f'{", ".join(engine.urls)} change: set learner.teacher_url, or engine.swap = "adapters"'
            )
        url, key = engine.urls[0], engine.key(os.environ)
    return ServedTeacher(
        folder,
        url,
        k=told_ids(settings.objective),
        given=given_ids(settings.objective),
        key=key,
        silence_s=waits.silence_s,
        patience_s=waits.patience_s,
    )


def check_teacher(settings: Settings, folder: Path) -> None:
    """SettingError if the teacher is on a server that the settings do not name, or that cannot teach the
    objective. The server is not asked."""
    if teacher_server(settings, folder) is not None:
        from afterwit.learning.teacher_scores import require_servable

        require_servable(settings.objective)


def _named_key(setting: str, variable: str | None) -> str | None:
    """What an environment variable holds. SettingError if it is named and not set."""
    if variable is not None and not os.environ.get(variable):
        raise SettingError(f"{setting} names the environment variable {variable}, which is not set")
    return None if variable is None else os.environ[variable]
