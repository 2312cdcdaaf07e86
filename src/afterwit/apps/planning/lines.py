"""The command lines that start each part on its cards, by the engines' own launchers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from afterwit.apps.config import Settings
from afterwit.apps.planning.cards import VISIBLE, Card
from afterwit.apps.planning.model import Model
from afterwit.apps.planning.plan import Models, Part
from afterwit.core.errors import SettingError
from afterwit.engines.kinds import LAUNCHERS
from afterwit.engines.server.settings import ServerSettings
from afterwit.engines.vllm.settings import VllmSettings
from afterwit.learner.served import MARGIN

CONTEXT = {"vllm": "--max-model-len", "sglang": "--context-length"}
OVER = {"vllm": "--tensor-parallel-size", "sglang": "--tp-size"}
COPIES = {"vllm": "--data-parallel-size", "sglang": "--dp-size"}
SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}


def lines(
    settings: Settings, models: Models, parts: Sequence[Part], *, given: Sequence[str] = ()
) -> Iterator[str]:
    """A line for each server, then Afterwit's own, with the flags `given`.

    SettingError if an address has no port.
    """
    by_name = {part.name: part for part in parts}
    engine, policy = settings.engine, by_name.get("policy")
    if policy is not None and isinstance(engine, ServerSettings):
        yield from _policy(settings, engine, models.served, policy, shared=_shared(parts))
    if (judge := by_name.get("judge")) is not None:
        name = ("--served-model-name", settings.judge.model or models.judge.name)
        yield _server(settings, models.judge, judge, settings.judge.url or "", name)
    if (teacher := by_name.get("teacher")) is not None:
        kept = ("--max-logprobs", str(settings.objective.ids_kept + MARGIN))
        flags = kept if _kind(settings) == "vllm" else ()
        yield _server(settings, models.teacher, teacher, settings.learner.teacher_url or "", flags)
    yield _own(settings, models.served, by_name, given)


def _policy(
    settings: Settings, engine: ServerSettings, model: Model, part: Part, *, shared: bool
) -> Iterator[str]:
    """The lines of the servers at `engine.url`. `shared`: the learner is on their card too."""
    if not model.here:
        yield f"# download {model.name} first: the flags of its servers follow from the names of its weights"
        return
    kind = _kind(settings)
    for index, url in enumerate(engine.urls):
        host, port = _address("engine.url", url)
        own = part.cards[index * part.over : (index + 1) * part.over]
        command = LAUNCHERS[kind](
            model.folder.resolve(), engine, host=host, port=port, lora_rank=settings.learner.lora_rank
        )
        share = (SHARE[kind], f"{part.needs / own[0].size:.2f}") if shared else ()
        sizes = _sizes(settings, model, over=part.over, copies=1)
        yield _line(own, (*command.arguments, *sizes, *share), **command.environment)


def _server(settings: Settings, model: Model, part: Part, url: str, flags: Sequence[str]) -> str:
    """The line of a judge or teacher, on a server of the engine's kind."""
    kind = _kind(settings)
    host, port = _address(f"the {part.name}'s URL", url)
    program = settings.engine.command if hasattr(settings.engine, "command") else VllmSettings().command
    start = ("serve", model.name) if kind == "vllm" else ("--model-path", model.name)
    sizes = _sizes(settings, model, over=part.over, copies=part.servers)
    return _line(part.cards, (*program, *start, "--host", host, "--port", str(port), *sizes, *flags))


def _own(settings: Settings, model: Model, parts: dict[str, Part], given: Sequence[str]) -> str:
    """Gateway, judge stage, learner, and an engine in the same process."""
    learner, policy = parts.get("learner"), parts.get("policy")
    embedded = policy is not None and not isinstance(settings.engine, ServerSettings)
    train = learner.cards if learner else ()
    serve = policy.cards if policy is not None and embedded else ()
    cards = tuple(dict.fromkeys((*train, *serve)))  # ranks take the first ones
    flags = ("--set", f"engine.device=cuda:{cards.index(serve[0])}") if serve else ()
    return _line(cards, ("./afterwit", "serve", model.name, *given, *flags))


def _shared(parts: Sequence[Part]) -> bool:
    learner, policy = (next((p for p in parts if p.name == name), None) for name in ("learner", "policy"))
    return bool(learner and policy and set(learner.cards) & set(policy.cards))


def _kind(settings: Settings) -> str:
    """Of a judge's or a teacher's server: the engine's, or vLLM."""
    return settings.engine.kind if settings.engine.kind in LAUNCHERS else "vllm"


def _sizes(settings: Settings, model: Model, *, over: int, copies: int) -> tuple[str, ...]:
    kind, context = _kind(settings), settings.placement.context
    return (
        *((CONTEXT[kind], str(context)) if context < model.shape.context else ()),
        *((OVER[kind], str(over)) if over > 1 else ()),
        *((COPIES[kind], str(copies)) if copies > 1 else ()),
    )


def _address(setting: str, url: str) -> tuple[str, int]:
    try:
        address = urlsplit(url)
        if address.hostname is not None and address.port is not None:
            return address.hostname, address.port
    except ValueError:
        pass  # a port that is no number
    raise SettingError(f"{setting} is {url}: to start its server it needs a port, as http://127.0.0.1:8000")


def _line(cards: Sequence[Card], words: Sequence[str], **environment: str) -> str:
    visible = {VISIBLE: ",".join(card.name for card in cards)}
    settings = [f"{name}={shlex.quote(value)}" for name, value in (visible | environment).items()]
    return " ".join([*settings, shlex.join(words)])
