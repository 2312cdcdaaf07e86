"""The configuration: one tree of settings, merged from flags, environment, file and recipe."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import platformdirs
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from afterwit import plugins, recipes
from afterwit.checkpoints.remote import VersionsSettings
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import KINDS, EngineSettings, engine_section
from afterwit.errors import SettingError
from afterwit.gateway.settings import GatewaySettings
from afterwit.home.home import CONFIG, expanded
from afterwit.judging.settings import JudgeSettings
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.settings import ObjectiveSettings
from afterwit.planning.gpus import PlacementSettings
from afterwit.practice.lessons import PracticeSettings
from afterwit.promotion.suite import PromotionSettings
from afterwit.publish.publisher import PublishSettings
from afterwit.ranges import above, at_least, below, one_of_its_choices, within
from afterwit.tracking.trackers import TrackingSettings
from afterwit.vetting.redaction import Redaction

T = TypeVar("T")
HOME_VARIABLE = "AFTERWIT_HOME"
PREFIX = "AFTERWIT_"
LONGEST_SHOWN = 200
"""Characters of a name or a value in an error."""
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The gateway's address, and how its processes end and restart."""

    host: str = "127.0.0.1"
    """Address to listen on; all but loopback need an API key."""
    port: int = 8720
    """TCP port; 0 takes a free one and prints it."""
    drain_s: float = 30.0
    """Seconds that running requests get after SIGTERM."""
    learner_restart_s: float = 5.0
    """Seconds before a dead learner restarts. They double up to 10, or up to 300 if it cannot start."""

    def __post_init__(self) -> None:
        within(self, 0, 65535, "port")
        at_least(self, 0, "drain_s", "learner_restart_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store of turns, and how long it keeps them."""

    url: str | None = None
    """`postgresql://user@host/database` for several machines; unset: `store.db` in the home. Set it in
    config.toml or the environment."""
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """For SQLite. NORMAL survives a killed process, FULL also a power loss, at the cost of a disk flush
    for each turn."""
    keep_days: float = 90.0
    """Days that ended turns are kept; waiting turns stay."""
    keep_gb: float = 20.0
    """Size in GB above which the oldest ended turns are removed early."""
    next_state_hours: float = 24.0
    """Hours after which a turn without a next state is skipped; a late reply reopens it."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        above(self, 0, "keep_days", "keep_gb", "next_state_hours")
        below(self, inf, "keep_days", "keep_gb", "next_state_hours")


class Settings(BaseModel):
    """The whole configuration, one section for each part."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    model: str | None = None
    """A Hugging Face model folder, or a hub id."""
    serve: ServeSettings = ServeSettings()
    gateway: GatewaySettings = GatewaySettings()
    engine: EngineSettings = EmbeddedSettings()
    judge: JudgeSettings = JudgeSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    learner: LearnerSettings = LearnerSettings()
    practice: PracticeSettings = PracticeSettings()
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

    def __reduce__(self) -> tuple[Callable[..., Settings], tuple[Any, ...]]:
        """The learner's process gets the settings pickled, and makes the class of `settings_class` itself."""
        return _unpickled, (self.__getstate__(),)


def _is_section(name: str, kind: type) -> None:
    if not dataclasses.is_dataclass(kind()):
        raise TypeError(f"{kind.__name__} is no data class")
    if name in Settings.model_fields:
        raise ValueError("Afterwit has a section of this name")


SECTIONS = plugins.Table[type](plugins.SECTIONS, type, check=_is_section)


def _unpickled(state: dict[Any, Any]) -> Settings:
    kind = settings_class()
    settings = kind.__new__(kind)
    settings.__setstate__(state)
    return settings


@cache
def settings_class() -> type[Settings]:
    """`Settings` with the sections of installed packages, except those that cannot be used."""
    added: dict[str, Any] = {"engine": (engine_section(), EmbeddedSettings())}
    added |= {name: (section, section()) for name, section in SECTIONS.usable().items()}
    return create_model("Settings", __base__=Settings, **added)


def home_of(flag: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of store, versions and config.toml: the flag's, else AFTERWIT_HOME, else the platform's."""
    if flag is not None:
        return expanded(flag)
    if environment.get(HOME_VARIABLE):
        return expanded(environment[HOME_VARIABLE])
    return Path(platformdirs.user_data_dir("afterwit"))


def load(
    *,
    home: Path | None,
    file: Path | None = None,
    pairs: Sequence[str] = (),
    direct: Mapping[str, Any] | None = None,
    below: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    unless: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from flags over environment over file over `below` (the demo's) over a published recipe, over
    `unless`, a command's own defaults.

    `home` is the flag; `pairs` are those of `--set`; `direct` are other flags by setting, None if absent.
    Raises SettingError: one line that names the key, the nearest known one, and where it is written.
    """
    flags: Tree = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingError(f"--set {pair}: write it as section.name=value, for example judge.votes=5")
        _assign(flags, name.strip().split("."), _value(value.strip()))
    for name, given in (direct or {}).items():
        if given is not None:
            _assign(flags, name.split("."), given)
    packaged = (
        (below, "the demo's settings"),
        (recipes.read(recipe) if recipe is not None else None, f"the recipe {recipe}"),
        (unless, "the command's own defaults"),
    )
    sources: list[Source] = [
        (flags, lambda _: "on the command line"),
        *_of_home(file or home_of(home, environment) / CONFIG, environment, optional=file is None),
        *((dict(tree), partial("in {0}".format, name)) for tree, name in packaged if tree),
    ]
    return _validated(_merged(sources), sources)


def section_of_home(home: Path, name: str) -> Settings:
    """One section of environment and home, for commands that need no other; the rest are the defaults."""
    sources = _of_home(home / CONFIG, os.environ)
    return _validated({name: _merged(sources).get(name, {})}, sources)


Source = tuple[Tree, Callable[[Sequence[str]], str]]
"""Settings, and for people the place where the key at a path is written."""


def _of_home(file: Path, environment: Mapping[str, str], *, optional: bool = True) -> list[Source]:
    """The environment, in which AFTERWIT_JUDGE__VOTES=5 is judge.votes = 5, and the file, if it exists.

    SettingError if it cannot be read, or is not there and not `optional`."""
    tree: Tree = {}
    for name, value in environment.items():
        if name.startswith(PREFIX) and name != HOME_VARIABLE:
            _assign(tree, name.removeprefix(PREFIX).lower().split("__"), _value(value))

    def variable(keys: Sequence[str]) -> str:
        divided = "" if len(keys) > 1 else "; two underscores divide section and name"
        return f"in the environment ({PREFIX}{'__'.join(keys).upper()}{divided})"

    found: list[Source] = [(tree, variable)]
    try:
        text = file.read_text(encoding="utf-8-sig")
        found.append((tomllib.loads(text), partial(_in_file, file, text)))
    except FileNotFoundError as error:
        if not optional:
            raise SettingError(f"there is no configuration file {file}") from error
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{file} is not valid TOML: {error}") from error
    except OSError as error:
        raise SettingError(f"{file} cannot be read: {error.strerror}") from error
    return found


def _in_file(file: Path, text: str, keys: Sequence[str]) -> str:
    """The file, and the line of the key, or of its table, if it is found."""
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        key = line.partition("=")[0].strip().strip("\"'") if "=" in line else ""
        if line.startswith("["):
            table, key = line.strip("[] "), ""
        elif not key or line.startswith("#"):
            continue
        if [*filter(None, table.split(".")), *filter(None, [key])] == list(keys):
            return f"in {file}, line {number}"
    return f"in {file}"


def _value(text: str) -> Any:
    """The text itself, which the settings' types parse; a list is parsed as JSON."""
    try:
        return json.loads(text) if text.startswith("[") else text
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{_cut(text)}: a list is written as JSON, for example [0.9, 0.98]") from error


def _assign(tree: Tree, path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SettingError(f"{'.'.join(path)}: {key} is a value, not a section")
        tree = inner
    tree[path[-1]] = value


def _merged(sources: Sequence[Source]) -> Tree:
    """One tree of all sources; the first source that has a key wins."""

    def overlay(below: Tree, above: Mapping[str, Any]) -> None:
        for key, value in above.items():
            if isinstance(value, Mapping) and isinstance(below.get(key), dict):
                overlay(below[key], value)
            else:
                below[key] = dict(value) if isinstance(value, Mapping) else value

    result: Tree = {}
    for tree, _ in reversed(sources):
        overlay(result, tree)
    return result


def _validated(tree: Tree, sources: Sequence[Source]) -> Settings:
    try:
        return settings_class().model_validate(tree)
    except ValidationError as error:
        raise SettingError(_explained(error, sources)) from error


def _explained(error: ValidationError, sources: Sequence[Source]) -> str:
    """The first fault in one line. The message of a section's own check begins with the name."""
    fault = error.errors()[0]
    path, value = [str(part) for part in fault["loc"] if not str(part).endswith("Settings")], fault["input"]
    message, choices = fault["msg"].removeprefix("Value error, "), fault.get("ctx", {}).get("expected", "")
    if fault["type"] == "union_tag_invalid":  # the kind of an engine
        path, value, choices = [*path, "kind"], fault["ctx"]["tag"], fault["ctx"]["expected_tags"]
        message = f"it must be one of {choices}"
        KINDS.get(value)  # raises if a package provides it
    elif len(path) > 1 and path[0] == "engine" and path[1] in KINDS:
        del path[1]  # not a setting: the kind of the section
    key = message.partition(" ")[0]
    if isinstance(value, Mapping) and key in value:
        path, value = [*path, key], value[key]
    name, where = _cut(".".join(path)), _place(path, sources)
    if fault["type"] in ("dataclass_type", "model_attributes_type"):
        message = f"it is a section: write [{name}], and below it each setting as name = value"
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        SECTIONS.get(path[0])  # raises if a package provides it
        engines = KINDS.usable().items() if path[0] == "engine" else ()
        has = {name: [field.name for field in dataclasses.fields(kind.settings)] for name, kind in engines}
        if kinds := [name for name in has if path[-1] in has[name]]:
            return f"{name}{where} is a setting of other engines: set engine.kind to {' or '.join(kinds)}"
        return f"unknown setting {name}{where}{_nearest(path)}"
    message = message.replace("unable to interpret input", "true or false")
    message = message.replace("a valid tuple", 'a list, for example ["one", "two"]')
    among = re.findall("'([^']*)'", str(choices)) or message.partition("must be one of ")[2].split(", ")
    near = difflib.get_close_matches(_cut(str(value)), among, n=1)
    message += f"; did you mean {near[0]}?" if near else ""
    return f"{name} = {_cut(repr(value))}{where}: {message}" if name else message


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _place(path: Sequence[str], sources: Sequence[Source]) -> str:
    """The place where the setting is written, after a blank; "" if no source has it."""
    for tree, place in sources:
        node: Any = tree
        for key in path:
            node = node.get(key) if isinstance(node, Mapping) else None
        if node is not None:
            return f" {place(path)}"
    return ""


ELSEWHERE = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "rank": "lora_rank",
    "lora_r": "lora_rank",
    "alpha": "lora_alpha",
}
"""Other programs' names of settings, if their letters do not resemble ours."""


def _nearest(path: Sequence[str]) -> str:
    """The setting that was meant: one of this section with all the words of the name; else one of such a name
    in any section; else all of this section."""
    last, names = _cut(path[-1].lower()), known_names()
    path = [*path[:-1], ELSEWHERE.get(last, last)]
    own = {name: {name.rpartition(".")[2], name.replace(".", "_")} for name in names}
    siblings = [name for name in names if name.rpartition(".")[0] == ".".join(path[:-1])]
    words = {*path[-1].split("_")}
    meant = [name for name in siblings if words <= {*name.rpartition(".")[2].split("_")}]
    if not meant:
        close = difflib.get_close_matches(path[-1], set[str]().union(*own.values()), n=1, cutoff=0.75)
        meant = [name for name in names if own[name].intersection(close)]
    near = difflib.get_close_matches(".".join(path), meant, n=1, cutoff=0.0)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(siblings)}"


def known_names() -> list[str]:
    """Every setting by its dotted name, sections included."""
    names: list[str] = []
    for key, info in settings_class().model_fields.items():
        names.append(key)
        for section in (info.annotation, *get_args(info.annotation)):
            if dataclasses.is_dataclass(section):
                names += [f"{key}.{field.name}" for field in dataclasses.fields(section)]
    return list(dict.fromkeys(names))
