"""The servers of a plan, as data: each one's cards and command line, by the engines' own launchers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from afterwit.apps.config import Settings
from afterwit.apps.planning.cards import CPU, Card, visible
from afterwit.apps.planning.memory import SPARE
from afterwit.apps.planning.model import Model
from afterwit.apps.planning.plan import Models, Part
from afterwit.core.errors import SettingError
from afterwit.engines.kinds import LAUNCHERS
from afterwit.engines.server.command import ServerCommand
from afterwit.engines.server.settings import ServerSettings
from afterwit.engines.vllm.command import QUIET
from afterwit.engines.vllm.settings import VllmSettings
from afterwit.learner.served import MARGIN

CONTEXT = {"vllm": "--max-model-len", "sglang": "--context-length"}
OVER = {"vllm": "--tensor-parallel-size", "sglang": "--tp-size"}
COPIES = {"vllm": "--data-parallel-size", "sglang": "--dp-size"}
SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedServer:
    """A server on its cards. `url` is its address without a path; the command names the cards too."""

    name: str
    """engine, or engine-1, engine-2 of several; judge; teacher."""
    url: str
    command: ServerCommand


def policy_servers(settings: Settings, models: Models, parts: Sequence[Part]) -> Iterator[PlacedServer]:
    """The servers at `engine.url`, if the policy has cards. SettingError if an address cannot be started at.

    The flags follow from the names of the model's weights, so these must be here.
    """
    by_name = {part.name: part for part in parts}
    engine, part, model = settings.engine, by_name.get("policy"), models.served
    if part is None or not isinstance(engine, ServerSettings):
        return
    for index, url in enumerate(engine.urls):
        host, port = address("engine.url", url)
        own = part.cards[index * part.over : (index + 1) * part.over]
        command = LAUNCHERS[engine.kind](
            model.folder.resolve(), engine, host=host, port=port, lora_rank=settings.learner.lora_rank
        )
        share = _share(engine.kind, part) if _shares(parts) and own[0].name != CPU else ()
        sizes = _sizes(settings, model, part, copies=1)
        yield PlacedServer(
            name="engine" if len(engine.urls) == 1 else f"engine-{index + 1}",
            url=f"http://{host}:{port}",
            command=_on(own, (*command.arguments, *sizes, *share), **command.environment),
        )


def other_servers(settings: Settings, models: Models, parts: Sequence[Part]) -> Iterator[PlacedServer]:
    """Judge and teacher, if they have cards, on servers of the engine's kind, or vLLM. SettingError if an
    address cannot be started at."""
    by_name = {part.name: part for part in parts}
    if (judge := by_name.get("judge")) is not None:
        name = ("--served-model-name", settings.judge.model or models.judge.name)
        yield _server(settings, models.judge, judge, "judge.url", settings.judge.url or "", name)
    if (teacher := by_name.get("teacher")) is not None:
        kept = ("--max-logprobs", str(settings.objective.ids_kept + MARGIN))
        flags, url = kept if _kind(settings) == "vllm" else (), settings.learner.teacher_url or ""
        yield _server(settings, models.teacher, teacher, "learner.teacher_url", url, flags)


def own_cards(settings: Settings, parts: Sequence[Part]) -> tuple[Card, ...]:
    """The cards of Afterwit's own processes: the learner's, then that of an engine among them."""
    by_name = {part.name: part for part in parts}
    embedded = not isinstance(settings.engine, ServerSettings)
    mine = [by_name[name] for name in ("learner", *(("policy",) if embedded else ())) if name in by_name]
    return tuple(dict.fromkeys(card for part in mine for card in part.cards))  # ranks take the first ones


def address(setting: str, url: str) -> tuple[str, int]:
    """Host and port. SettingError, with the setting's name, if a server cannot be started there."""
    try:
        there = urlsplit(url)
        if there.hostname is not None and there.port is not None:
            return there.hostname, there.port
    except ValueError:
        pass  # a port that is no number
    raise SettingError(f"{setting} is {url}: to start its server it needs a port, as http://127.0.0.1:8000")


def _server(
    settings: Settings, model: Model, part: Part, setting: str, url: str, flags: Sequence[str]
) -> PlacedServer:
    kind, (host, port) = _kind(settings), address(setting, url)
    program = settings.engine.command if hasattr(settings.engine, "command") else VllmSettings().command
    start = ("serve", model.name) if kind == "vllm" else ("--model-path", model.name)
    sizes = _sizes(settings, model, part, copies=part.servers)
    words = (*program, *start, "--host", host, "--port", str(port), *sizes, *flags)
    command = _on(part.cards, words, **(QUIET if kind == "vllm" else {}))
    return PlacedServer(name=part.name, url=f"http://{host}:{port}", command=command)


def _on(cards: Sequence[Card], arguments: tuple[str, ...], **environment: str) -> ServerCommand:
    return ServerCommand(arguments=arguments, environment=visible(cards) | environment)


def _kind(settings: Settings) -> str:
    """Of a judge's or a teacher's server."""
    return settings.engine.kind if settings.engine.kind in LAUNCHERS else "vllm"


def _shares(parts: Sequence[Part]) -> bool:
    """Whether the learner is on the policy's card too."""
    learner, policy = (next((p for p in parts if p.name == name), None) for name in ("learner", "policy"))
    return bool(learner and policy and set(learner.cards) & set(policy.cards))


def _share(kind: str, part: Part) -> tuple[str, ...]:
    return (SHARE[kind], f"{part.needs / part.cards[0].size:.2f}")


def _sizes(settings: Settings, model: Model, part: Part, *, copies: int) -> tuple[str, ...]:
    kind, context = _kind(settings), settings.placement.context
    return (
        *((CONTEXT[kind], str(context)) if context < model.shape.context else ()),
        *((OVER[kind], str(part.over)) if part.over > 1 else ()),
        *((COPIES[kind], str(copies)) if copies > 1 else ()),
        *(_on_cpu(kind, part, min(context, model.shape.context)) if part.cards[0].name == CPU else ()),
    )


def _on_cpu(kind: str, part: Part, tokens: int) -> tuple[str, ...]:
    """All parts share one memory there, of which a server would take most: it gets what is counted."""
    if kind == "vllm":
        return ("--kv-cache-memory-bytes", str(int(SPARE * part.memory["keys and values"])))
    return ("--device", "cpu", "--max-total-tokens", str(tokens))
