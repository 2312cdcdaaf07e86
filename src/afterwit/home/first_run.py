"""The first start: a config.toml for a new home, from answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from afterwit.errors import SettingError
from afterwit.gateway.auth import is_loopback
from afterwit.home.home import CONFIG, make_home

LOOPBACK = "127.0.0.1"

HERE = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A person's answers. `url`: of a running vLLM or SGLang server, if `engine` is one; `key`: the name
    of an API key to make. SettingError if other machines could call without one."""

    model: str
    engine: str = HERE
    url: str | list[str] | None = None
    host: str = LOOPBACK
    key: str | None = None
    record_only: bool = False

    def __post_init__(self) -> None:
        if self.key is None and not is_loopback(self.host):
            raise SettingError(
                f"--host {self.host} can be reached from other machines: name an API key too, --key NAME"
            )

    def settings(self) -> dict[str, str | list[str] | bool]:
        """The values that differ from the defaults, by the settings' names."""
        found: dict[str, str | list[str] | bool] = {"model": self.model}
        if self.host != LOOPBACK:
            found["serve.host"] = self.host
        if self.engine != HERE:
            found["engine.kind"] = self.engine
        if self.url is not None:
            found["engine.url"] = self.url
        if self.record_only:
            found |= {"judge.enabled": False, "learner.enabled": False}
        return found


def refuse_second(home: Path) -> None:
    """SettingError if the home has a config.toml: a person's file is never changed."""
    if (path := home / CONFIG).exists():
        raise SettingError(f"{path} exists already: edit it, then run `afterwit doctor`")


def write_config(home: Path, answers: Answers) -> Path:
    """Write config.toml into the home, which is made if missing; the file."""
    path = make_home(home) / CONFIG
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in answers.settings().items())
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}; choose another --home") from error
    return path
