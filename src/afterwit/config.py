"""The configuration: one tree of settings, merged from flags, environment, file and recipe."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

import platformdirs
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails

from afterwit import plugins, recipes
from afterwit.checkpoints.remote import VersionsSettings
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import KINDS, EngineSettings
from afterwit.errors import SettingError
from afterwit.gateway.settings import GatewaySettings
from afterwit.home.home import CONFIG
from afterwit.judging.settings import JudgeSettings
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.planning.gpus import PlacementSettings
from afterwit.promotion.settings import PromotionSettings
from afterwit.publish.settings import PublishSettings
from afterwit.ranges import above, at_least, below, one_of_its_choices, within
from afterwit.teaching.redaction import Redaction
from afterwit.tracking.settings import TrackingSettings

T = TypeVar("T")

HOME_VARIABLE = "AFTERWIT_HOME"


NOT_SETTINGS = frozenset({HOME_VARIABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Where to listen, and how to stop."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    host: str = "127.0.0.1"
    """Address to listen on. Any but a loopback address needs at least one API key."""
    port: int = 8720
    """TCP port; 0 takes a free one and prints it."""
    drain_s: float = 30.0
    """Seconds that running requests may take to finish after SIGTERM."""
    learner_restart_s: float = 5.0
    """Seconds before a learner that died is started again; doubles up to 10 s, or five minutes if it
    cannot start."""

    def __post_init__(self) -> None:
        within(self, 0, 65535, "port")
        at_least(self, 0, "drain_s", "learner_restart_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How durable turns are, and how long they are kept."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    url: str | None = None
    """Where turns are stored; unset: in `store.db` of the home. `postgresql://user@host/database`: several
    machines over one store. Write it in config.toml or the environment, so that every command finds it."""
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """Of SQLite. NORMAL survives a killed process; FULL survives a power loss, at the price of a disk flush a
    turn. PostgreSQL survives both, unless its own `synchronous_commit` says otherwise."""
    keep_days: float = 90.0
    """Days that ended turns are kept; those still waiting to be judged or trained are never removed."""
    keep_gb: float = 20.0
    """Size in GB above which the oldest ended turns are removed early."""
    next_state_hours: float = 24.0
    """Hours after which a turn that nothing answered ends; a late reply reopens it."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        above(self, 0, "keep_days", "keep_gb", "next_state_hours")
        below(self, inf, "keep_days", "keep_gb", "next_state_hours")


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
    placement: PlacementSettings = PlacementSettings()

    def section(self, kind: type[T]) -> T:
        """The section of this class, for packages that add one. Raises LookupError if there is none."""
        for name in type(self).model_fields:
            if isinstance(section := getattr(self, name), kind):
                return section
        raise LookupError(f"no section of the configuration is a {kind.__name__}")


@cache
def settings_class() -> type[Settings]:
    """`Settings` with the sections of installed packages. Raises SettingError if one fails to load."""
    added: dict[str, Any] = {}
    for name, part in plugins.installed(plugins.SECTIONS).items():
        section = plugins.loaded(part)
        added[name] = (section, section())
    return create_model("Settings", __base__=Settings, **added)


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
        return settings_class().model_validate(merged(sources))
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
    for key, info in settings_class().model_fields.items():
        names.append(key)
        for section in (info.annotation, *get_args(info.annotation)):
            if dataclasses.is_dataclass(section):
                names += [f"{key}.{field.name}" for field in dataclasses.fields(section)]
    return list(dict.fromkeys(names))


PREFIX = "AFTERWIT_"


Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """One source of settings."""

    tree: Tree
    written: Callable[[Sequence[str]], str]
    """Where the key at a path is written in this source, for people."""

    def place(self, path: Sequence[str]) -> str | None:
        """Where the key at `path` is written; None if this source does not hold it."""
        node: Any = self.tree
        for key in path:
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = node[key]
        return self.written(path)


def merged(sources: Sequence[SettingsSource]) -> Tree:
    """One tree of all sources; the first source that has a key wins."""
    result: Tree = {}
    for source in reversed(sources):
        _overlay(result, source.tree)
    return result


def file_source(path: Path) -> SettingsSource:
    """A TOML file's settings. SettingError if it is not valid TOML."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    return SettingsSource(tree=tree, written=partial(_in_file, path))


def named_source(tree: Tree, name: str) -> SettingsSource:
    """Settings that come with the package: a recipe's, or the demo's."""
    return SettingsSource(tree=tree, written=lambda _: f"in {name}")


def environment_source(environment: Mapping[str, str], *, apart: frozenset[str]) -> SettingsSource:
    """The environment's settings, without names in `apart`: AFTERWIT_JUDGE__VOTES=5 is judge.votes = 5."""
    tree: Tree = {}
    for name, value in environment.items():
        if name.startswith(PREFIX) and name not in apart:
            assign(tree, name.removeprefix(PREFIX).lower().split("__"), _value(value))
    return SettingsSource(tree=tree, written=_in_environment)


def flag_source(pairs: Sequence[str], direct: Mapping[str, Any]) -> SettingsSource:
    """`--set judge.votes=5` and the flags of their own (`direct`, dotted names; None: not given)."""
    tree: Tree = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingError(f"--set {pair}: write it as section.name=value, for example judge.votes=5")
        assign(tree, name.strip().split("."), _value(value.strip()))
    for name, value in direct.items():
        if value is not None:
            assign(tree, name.split("."), value)
    return SettingsSource(tree=tree, written=lambda _: "on the command line")


def assign(tree: Tree, path: Sequence[str], value: Any) -> None:
    """Put `value` at `path` and make the tables above it."""
    for key in path[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SettingError(f"{'.'.join(path)}: {key} is a value, not a section")
        tree = inner
    tree[path[-1]] = value


def _value(text: str) -> Any:
    """The text itself, which the settings' types read; a list is parsed as JSON."""
    if not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(f"{text}: a list is written as JSON, for example [0.9, 0.98]") from error


def _overlay(below: Tree, above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), dict):
            _overlay(below[key], value)
        else:
            below[key] = dict(value) if isinstance(value, Mapping) else value


def _in_environment(keys: Sequence[str]) -> str:
    return f"in the environment ({PREFIX}{'__'.join(keys).upper()})"


def _in_file(path: Path, keys: Sequence[str]) -> str:
    line = _line_of(path, keys)
    return f"in {path}" + (f", line {line}" if line else "")


def _line_of(path: Path, keys: Sequence[str]) -> int | None:
    wanted_table, wanted_key = ".".join(keys[:-1]), keys[-1]
    for number, table, key in _keys_of(path):
        if (table, key) in ((wanted_table, wanted_key), (".".join(keys), "")):
            return number
    return None


def _keys_of(path: Path) -> Iterator[tuple[int, str, str]]:
    table = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            table = text.strip("[] ")
            yield number, table, ""
        elif "=" in text and not text.startswith("#"):
            yield number, table, text.partition("=")[0].strip().strip("\"'")
