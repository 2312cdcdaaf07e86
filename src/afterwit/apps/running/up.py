"""`afterwit up` as a program: a server of our own, and the stages in front of it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from afterwit.apps.config import Settings
from afterwit.apps.home import make_home
from afterwit.apps.model import model_folder
from afterwit.apps.running import serve
from afterwit.apps.running.engine_process import EngineProcess
from afterwit.apps.running.runtime import STAGES
from afterwit.core.errors import SettingError
from afterwit.engines.kinds import LAUNCHERS
from afterwit.engines.server.settings import ServerSettings


def run(settings: Settings, home: Path) -> None:
    """Start the server and the stages; stop both at SIGINT or SIGTERM."""
    serve.run(settings, home, STAGES, server=engine_process(settings, home))


def engine_process(settings: Settings, home: Path) -> EngineProcess:
    """The server that the settings ask for, not started yet. SettingError if they cannot go together."""
    engine, learner = settings.engine, settings.learner
    if not isinstance(engine, ServerSettings) or engine.kind not in LAUNCHERS:
        raise SettingError(
            f"engine.kind is {engine.kind!r}, which starts no server: choose one of {', '.join(LAUNCHERS)}, "
            "or use `afterwit serve`"
        )
    if learner.enabled and (engine.swap == "adapters") != (learner.lora_rank > 0):
        raise SettingError(
            f"engine.swap is {engine.swap!r}, but learner.lora_rank is {learner.lora_rank}: adapters need a "
            "rank above 0, whole weights need 0"
        )
    if len(engine.urls) > 1:
        raise SettingError(
            f"engine.url names {len(engine.urls)} servers, and `afterwit up` starts one: start them by their "
            "own launchers, then run `afterwit serve` with the same engine.url"
        )
    if settings.placement.learner:
        raise SettingError(
            f"placement.learner is {settings.placement.learner}, but `afterwit up` gives its server and the "
            "learner the cards that it sees itself: they would meet on one. Start both by the lines that "
            "`afterwit plan` prints, or set placement.learner=0"
        )
    (url,) = engine.urls
    address = urlsplit(url)
    if address.hostname is None or address.port is None or address.path.strip("/"):
        raise SettingError(f"engine.url is {url}: `afterwit up` needs it as http://127.0.0.1:8000")
    folder = model_folder(settings.model, make_home(home))
    command = LAUNCHERS[engine.kind](
        folder.resolve(), engine, host=address.hostname, port=address.port, lora_rank=learner.lora_rank
    )
    return EngineProcess(command, url, home)
