"""The teacher on a server, if the settings name one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.apps.config import Settings
from afterwit.core.errors import SettingError

if TYPE_CHECKING:
    from afterwit.core.teacher import TeacherServer


def teacher_server(settings: Settings, folder: Path) -> TeacherServer | None:
    """The server that `learner.teacher = "server"` names, not asked yet; None for any other teacher.

    SettingError if the settings name none whose weights stay what they are.
    """
    from afterwit.engines.server.settings import ServerSettings
    from afterwit.engines.teacher import ServedTeacher
    from afterwit.learner.served import given_ids, told_ids
    from afterwit.learner.settings import SERVER

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
        from afterwit.learner.served import require_servable

        require_servable(settings.objective)


def _named_key(setting: str, variable: str | None) -> str | None:
    """What an environment variable holds. SettingError if it is named and not set."""
    if variable is not None and not os.environ.get(variable):
        raise SettingError(f"{setting} names the environment variable {variable}, which is not set")
    return None if variable is None else os.environ[variable]
