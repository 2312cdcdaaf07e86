"""`afterwit up` as a program: the servers that it starts, and the stages."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from afterwit.config import Settings
from afterwit.engines.kinds import SERVERS, server_command
from afterwit.engines.server.process import EngineProcess
from afterwit.engines.server.settings import AnyServer, ServerSettings, SglangSettings
from afterwit.errors import SettingError
from afterwit.home.home import STAGES, make_home
from afterwit.home.model import model_folder
from afterwit.planning.gpus import first_gpu, gpus_here, visible
from afterwit.planning.plan import mismatched_swap, models_of, plan
from afterwit.planning.servers import address, lone_flags, own_gpus, servers_of
from afterwit.running import serve

SERVER = {"engine": {"kind": "vllm"}}
"""The server that `afterwit up` starts unless the settings name another kind."""

KEYS = {"vllm": "VLLM_API_KEY", "sglang": "SGLANG_API_KEY", "llama_cpp": "LLAMA_API_KEY"}
"""The environment variable of a server's key. vLLM and llama.cpp read it themselves."""
KEY_FILE = "sglang.yaml"
"""The options that SGLang reads from the home: on its command line every user could read the key."""

log = logging.getLogger(__name__)


def run(settings: Settings, home: Path) -> None:
    """Start the servers and the stages; stop all at SIGINT or SIGTERM.

    Without a section `placement` that is one server, on the GPUs that this process sees. AlreadyRunning,
    before anything is written or started, if another process runs a stage over this home.
    """
    with serve.stage_locks(settings, home, STAGES):
        settings = guarded(settings, home, os.environ)
        if "placement" in settings.model_fields_set:
            servers, environment = placed(settings, home)
            os.environ |= environment  # the learner's processes inherit it; here nothing uses a GPU
        else:
            servers = (engine_process(settings, home),)
        serve.run(settings, home, STAGES, servers=servers, locked=True)


def guarded(settings: Settings, home: Path, environment: MutableMapping[str, str]) -> Settings:
    """The settings with a random key for the servers that are started: their port is open to every program of
    this machine and every page, and takes weights."""
    engine, judge, learner = settings.engine, settings.judge, settings.learner
    if not isinstance(engine, ServerSettings) or engine.api_key_env is not None:
        return settings
    if isinstance(engine, SglangSettings) and {"--api-key", "--config"} & {*engine.flags, *engine.command}:
        return settings
    name = KEYS[engine.kind]
    key = environment.setdefault(name, secrets.token_hex(20))
    if isinstance(engine, SglangSettings):
        path = make_home(home) / KEY_FILE
        path.touch(mode=0o600)
        path.write_text(f"api-key: {json.dumps(key)}\n")
        engine = replace(engine, command=(*engine.command, "--config", str(path.resolve())))
    changed: dict[str, object] = {"engine": replace(engine, api_key_env=name)}
    if settings.placement.judge and judge.api_key_env is None:
        changed["judge"] = replace(judge, api_key_env=name)
    if settings.placement.teacher and learner.teacher_key_env is None:
        changed["learner"] = replace(learner, teacher_key_env=name)
    return settings.model_copy(update=changed)


def engine_process(settings: Settings, home: Path) -> EngineProcess:
    """The server that the settings ask for, not started yet. SettingError if they cannot go together.

    Its flags leave room for the learner, unless the model cannot be counted.
    """
    engine = _engine(settings)
    if (fault := mismatched_swap(settings)) is not None:
        raise SettingError(fault)
    if len(engine.urls) > 1:
        raise SettingError(
            f"engine.url names {len(engine.urls)} servers, and `afterwit up` starts one: to start all "
            f"of them set placement.policy = {len(engine.urls)}, or as many GPUs as they have together"
        )
    host, port = address("engine.url", engine.urls[0])
    folder, gpu = model_folder(settings.model, make_home(home)), first_gpu()
    room: tuple[str, ...] = ()
    try:
        models = models_of(settings.model_copy(update={"model": str(folder)}), home)
        room = () if gpu is None else lone_flags(settings, models, gpu)
    except SettingError as error:
        log.info("the server takes its default share of memory: %s", error)
    command = server_command(
        folder.resolve(), engine, host=host, port=port, lora_rank=settings.learner.lora_rank, more=room
    )
    return EngineProcess(command, engine.urls[0], home)


def placed(
    settings: Settings, home: Path, environment: Mapping[str, str] = os.environ
) -> tuple[tuple[EngineProcess, ...], dict[str, str]]:
    """The servers on the GPUs that the section `placement` gives them, not started yet; and the environment
    variables with which Afterwit's own processes see theirs.

    SettingError, with the numbers, if something does not fit or does not go together.
    """
    _engine(settings)
    gpus = gpus_here(settings.placement, environment)
    folder = model_folder(settings.model, make_home(home))  # downloaded: the flags follow from its weights
    models = models_of(settings.model_copy(update={"model": str(folder)}), home)
    made = plan(settings, models, gpus)
    servers = servers_of(made)
    processes = tuple(EngineProcess(each.command, each.url, home, name=each.name) for each in servers)
    return processes, visible(own_gpus(made))


def _engine(settings: Settings) -> AnyServer:
    engine = settings.engine
    if not isinstance(engine, ServerSettings):
        raise SettingError(
            f"engine.kind is {engine.kind!r}, which starts no server: choose one of {', '.join(SERVERS)}, "
            "or use `afterwit serve`"
        )
    for url in engine.urls:
        if urlsplit(url).path.strip("/"):
            raise SettingError(f"engine.url is {url}: `afterwit up` needs it as http://127.0.0.1:8000")
    return engine
