"""The servers of a plan, as data: each one's cards and command line, by the engines' own launchers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from afterwit.config import Settings
from afterwit.engines.kinds import LAUNCHERS
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import ServerSettings, VllmSettings
from afterwit.engines.vllm.command import QUIET
from afterwit.engines.vllm.inspect import SAMPLES
from afterwit.errors import SettingError
from afterwit.learning.teacher_scores import told_ids
from afterwit.planning.cards import CPU, Card, visible
from afterwit.planning.memory import KEPT, SPARE, WIDTHS, Model
from afterwit.planning.plan import Models, Part, parts_of

CONTEXT = {"vllm": "--max-model-len", "sglang": "--context-length"}


OVER = {"vllm": "--tensor-parallel-size", "sglang": "--tp-size"}


COPIES = {"vllm": "--data-parallel-size", "sglang": "--dp-size"}


SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}


MOST = 0.9
"""The largest share of a card that a server is given."""


ROOM = 16
"""The part of the machine's memory that a lone server on the CPU keeps its keys and values in, if one request
needs no more: with 16 GB, those of 9,000 tokens of Qwen3-0.6B in bfloat16."""


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
        share = _share(engine.kind, part, by_name["learner"]) if _shares(parts) else ()
        command = LAUNCHERS[engine.kind](
            model.folder.resolve(),
            engine,
            host=host,
            port=port,
            lora_rank=settings.learner.lora_rank,
            more=(*_sizes(settings, model, part, copies=1), *share),
        )
        yield PlacedServer(
            name="engine" if len(engine.urls) == 1 else f"engine-{index + 1}",
            url=f"http://{host}:{port}",
            command=_on(own, command.arguments, **command.environment),
        )


def other_servers(settings: Settings, models: Models, parts: Sequence[Part]) -> Iterator[PlacedServer]:
    """Judge and teacher, if they have cards, on servers of the engine's kind, or vLLM. SettingError if an
    address cannot be started at."""
    by_name = {part.name: part for part in parts}
    if (judge := by_name.get("judge")) is not None:
        name = ("--served-model-name", settings.judge.model or models.judge.name)
        yield _server(settings, models.judge, judge, "judge.url", settings.judge.url or "", name)
    if (teacher := by_name.get("teacher")) is not None:
        tells = (SAMPLES, "--max-logprobs", str(told_ids(settings.objective)))
        flags, url = tells if _kind(settings) == "vllm" else (), settings.learner.teacher_url or ""
        yield _server(settings, models.teacher, teacher, "learner.teacher_url", url, flags)


def lone_flags(settings: Settings, models: Models, card: Card) -> tuple[str, ...]:
    """Flags of the one server of a machine without a section `placement`: it leaves the learner its room.

    By themselves vLLM and SGLang take nearly all of a card, or of the machine's memory.
    """
    (policy, *others) = parts_of(settings, models, (card,))
    if card.name == CPU:
        policy = replace(policy, memory=policy.memory | {KEPT: max(policy.memory[KEPT], card.size // ROOM)})
        return _sizes(settings, models.served, policy, copies=1)
    if not others:
        return ()
    kind, free = _kind(settings), card.size * _left(policy, others[0]) / SPARE
    longest = (free - policy.memory["weights"] - policy.memory["adapters"]) // (policy.memory[KEPT] or 1)
    room = longest * min(settings.placement.context, models.served.shape.context)
    sizes = () if room >= models.served.shape.context else _sizes(settings, models.served, policy, copies=1)
    return (*sizes, *_share(kind, policy, others[0]))


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
    both = set(learner.cards) & set(policy.cards) if learner and policy else ()
    return any(card.name != CPU for card in both)


def _share(kind: str, policy: Part, learner: Part) -> tuple[str, ...]:
    return (SHARE[kind], f"{_left(policy, learner):.2f}")


def _left(policy: Part, learner: Part) -> float:
    """The share of a card that the learner leaves, and at least what the policy needs."""
    size = policy.cards[0].size
    return min(max(policy.needs, size - learner.needs) / size, MOST)


def _sizes(settings: Settings, model: Model, part: Part, *, copies: int) -> tuple[str, ...]:
    kind, context = _kind(settings), settings.placement.context
    return (
        *((CONTEXT[kind], str(context)) if context < model.shape.context else ()),
        *((OVER[kind], str(part.over)) if part.over > 1 else ()),
        *((COPIES[kind], str(copies)) if copies > 1 else ()),
        *(_on_cpu(kind, settings, model, part) if part.cards[0].name == CPU else ()),
    )


def _on_cpu(kind: str, settings: Settings, model: Model, part: Part) -> tuple[str, ...]:
    """All parts share one memory there, of which a server would take most: it gets what is counted."""
    if kind == "vllm":
        return ("--kv-cache-memory-bytes", str(int(SPARE * part.memory[KEPT])))
    own = settings.engine.dtype if part.name == "policy" else "auto"
    tokens = part.memory[KEPT] // (WIDTHS[model.dtype if own == "auto" else own] * model.shape.kept_per_token)
    return ("--device", "cpu", "--max-total-tokens", str(tokens))


def lines(
    settings: Settings, models: Models, parts: Sequence[Part], *, given: Sequence[str] = ()
) -> Iterator[str]:
    """A line for each server, then Afterwit's own, with the flags `given`.

    SettingError if an address has no port.
    """
    if models.served.here:
        servers = list(policy_servers(settings, models, parts))
    else:
        servers = []
        if isinstance(settings.engine, ServerSettings) and any(part.name == "policy" for part in parts):
            name = models.served.name
            yield f"# download {name} first: the flags of its servers follow from the names of its weights"
    for server in (*servers, *other_servers(settings, models, parts)):
        yield _line(server.command.environment, server.command.arguments)
    own, embedded = own_cards(settings, parts), not isinstance(settings.engine, ServerSettings)
    policy = next((part for part in parts if part.name == "policy"), None)
    on = policy.cards[0] if embedded and policy is not None else None
    flags = () if on is None else ("--set", f"engine.device={_device(own.index(on), on.name)}")
    yield _line(visible(own), ("./afterwit", "serve", models.served.name, *given, *flags))


def _device(index: int, name: str) -> str:
    return "cpu" if name == CPU else f"cuda:{index}"


def _line(environment: Mapping[str, str], words: Sequence[str]) -> str:
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(words)]
    )
