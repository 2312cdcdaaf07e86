"""All settings in one tree. Each section is declared beside the code that uses it, with its defaults."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import platformdirs
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from afterwit import recipes
from afterwit.apps.config.sections import ServeSettings, StoreSettings
from afterwit.apps.config.sources import (
    SettingsSource,
    environment_source,
    file_source,
    flag_source,
    merged,
    named_source,
)
from afterwit.apps.home import CONFIG
from afterwit.apps.planning.settings import PlacementSettings
from afterwit.checkpoints import VersionsSettings
from afterwit.core.errors import SettingError
from afterwit.core.redaction import Redaction
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import KINDS, EngineSettings
from afterwit.learner.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.stages.atropos.settings import AtroposSettings
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.promotion import PromotionSettings
from afterwit.stages.publish import PublishSettings
from afterwit.stages.tracking import TrackingSettings

HOME_VARIABLE = "AFTERWIT_HOME"
NOT_SETTINGS = frozenset({HOME_VARIABLE})


class Settings(BaseModel):
    """The whole configuration, one section for each part."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    """A Hugging Face model folder, or a hub id."""
    serve: ServeSettings = ServeSettings()
    gateway: GatewaySettings = GatewaySettings()
    engine: EngineSettings = EmbeddedSettings()
    judge: JudgeSettings = JudgeSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    learner: LearnerSettings = LearnerSettings()
    promotion: PromotionSettings = PromotionSettings()
    redaction: Redaction = Redaction()
    versions: VersionsSettings = VersionsSettings()
    publish: PublishSettings = PublishSettings()
    store: StoreSettings = StoreSettings()
    tracking: TrackingSettings = TrackingSettings()
    atropos: AtroposSettings = AtroposSettings()
    placement: PlacementSettings = PlacementSettings()


def home_of(flag: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of store, versions and config.toml: the flag's, else AFTERWIT_HOME, else the platform's."""
    if flag is not None:
        return flag.expanduser()
    if environment.get(HOME_VARIABLE):
        return Path(environment[HOME_VARIABLE]).expanduser()
    return Path(platformdirs.user_data_dir("afterwit"))


def load(
    *,
    home: Path,
    file: Path | None = None,
    pairs: Sequence[str] = (),
    direct: Mapping[str, Any] | None = None,
    below: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    unless: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from flags over environment over file over `below` (the demo's) over a published recipe, over
    `unless`: what a command takes unless one of these says otherwise.

    Raises SettingError: one line that names the key, the nearest right one, and where it is written.
    """
    sources = [flag_source(pairs, direct or {}), environment_source(environment, apart=NOT_SETTINGS)]
    path = file or home / CONFIG
    if file is not None and not file.exists():
        raise SettingError(f"there is no configuration file {file}")
    if path.exists():
        sources.append(file_source(path))
    if below:
        sources.append(named_source(dict(below), "the demo's settings"))
    if recipe is not None:
        sources.append(named_source(recipes.read(recipe), f"the recipe {recipe}"))
    if unless:
        sources.append(named_source(dict(unless), "the command's own defaults"))
    try:
        return Settings.model_validate(merged(sources))
    except ValidationError as error:
        raise SettingError(explain(error, sources)) from error


def store_settings(home: Path) -> StoreSettings:
    """The section `store` of environment and home, for commands that need no other. Raises SettingError."""
    return _section("store", home).store


def versions_settings(home: Path) -> VersionsSettings:
    """The section `versions`, likewise."""
    return _section("versions", home).versions


def _section(name: str, home: Path) -> Settings:
    """The settings of environment and home with this section alone."""
    sources = [environment_source(os.environ, apart=NOT_SETTINGS)]
    if (home / CONFIG).exists():
        sources.append(file_source(home / CONFIG))
    try:
        return Settings.model_validate({name: merged(sources).get(name, {})})
    except ValidationError as error:
        raise SettingError(explain(error, sources)) from error


def explain(error: ValidationError, sources: Sequence[SettingsSource]) -> str:
    """The first fault in one line."""
    fault = error.errors()[0]
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "union_tag_invalid":
        return _unknown_kind(fault, sources)
    path, value = _named([str(part) for part in fault["loc"]], fault["input"], message)
    name = ".".join(path)
    place = next((found for source in sources if (found := source.place(path))), "")
    where = f" {place}" if place else ""
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown setting {name}{where}{_nearest(path)}"
    message += _nearest_choice(fault)
    return f"{name} = {value!r}{where}: {message}" if name else message


def _unknown_kind(fault: ErrorDetails, sources: Sequence[SettingsSource]) -> str:
    """A section whose `kind` is none of those there are."""
    path = [*map(str, fault["loc"]), "kind"]
    tag, choices = fault["ctx"]["tag"], fault["ctx"]["expected_tags"]
    where = next((f" {found}" for source in sources if (found := source.place(path))), "")
    near = difflib.get_close_matches(tag, re.findall("'([^']*)'", choices), n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{'.'.join(path)} = {tag!r}{where}: it must be one of {choices}{meant}"


def _named(path: Sequence[str], value: Any, message: str) -> tuple[list[str], Any]:
    """The setting that a fault is about, and its value: a section's own checks begin with the name."""
    path = [part for part in path if not part.endswith("Settings")]
    if len(path) > 1 and path[0] == "engine" and path[1] in KINDS:
        del path[1]  # not a setting: the kind that the other ones were read as
    key = message.partition(" ")[0]
    return ([*path, key], value[key]) if isinstance(value, Mapping) and key in value else (path, value)


def _nearest(path: Sequence[str]) -> str:
    """The setting that was meant: one of such a name in whatever section, else the nearest as a whole."""
    names, written = known_names(), ".".join(path)
    own = {name: name.rpartition(".")[2] for name in names}
    alike = difflib.get_close_matches(path[-1], set(own.values()), n=1, cutoff=0.75)
    meant = [name for name in names if own[name] in alike]
    near = difflib.get_close_matches(written, meant or names, n=1, cutoff=0.0 if meant else 0.5)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(_siblings(path))}"


def _nearest_choice(fault: ErrorDetails) -> str:
    """For a value that is none of a setting's choices: the nearest of them, if one is near."""
    choices = re.findall("'([^']*)'", str(fault.get("ctx", {}).get("expected", "")))
    near = difflib.get_close_matches(str(fault["input"]), choices, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _siblings(path: Sequence[str]) -> list[str]:
    prefix = ".".join(path[:-1])
    return [name for name in known_names() if name.rpartition(".")[0] == prefix]


def known_names() -> list[str]:
    """Every setting by its dotted name, sections included."""
    names: list[str] = []
    for key, info in Settings.model_fields.items():
        names.append(key)
        for section in (info.annotation, *get_args(info.annotation)):
            if dataclasses.is_dataclass(section):
                names += [f"{key}.{field.name}" for field in dataclasses.fields(section)]
    return list(dict.fromkeys(names))
