"""Each part's cards and what it takes of them. What does not fit is refused with the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterwit.config import Settings
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.server.settings import ServerSettings
from afterwit.engines.vllm.command import ADAPTERS
from afterwit.errors import SettingError
from afterwit.learning.settings import SERVER
from afterwit.learning.teacher_scores import require_servable
from afterwit.planning.cards import CPU, Card
from afterwit.planning.memory import (
    SPARE,
    Memory,
    Model,
    embedded_memory,
    learner_memory,
    pass_tokens,
    server_memory,
)

HALF = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models of a plan; `others` are the checkpoints that teacher and reference name."""

    served: Model
    judge: Model
    teacher: Model
    others: tuple[Model, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part on its cards. Each of `servers` copies lies over `over` cards; `memory` is of each card."""

    name: str
    cards: tuple[Card, ...]
    memory: Memory
    servers: int = 1
    over: int = 1

    @property
    def needs(self) -> int:
        """Bytes of each card, with what CUDA and the allocator take."""
        return int(SPARE * sum(self.memory.values()))


def plan(settings: Settings, models: Models, cards: Sequence[Card]) -> tuple[Part, ...]:
    """The parts in the order of their cards: policy, judge, teacher, learner.

    SettingError if the settings do not go together, or if a part does not fit, with the numbers.
    """
    for wrong in contradictions(settings, models.served, len(cards)):
        raise SettingError(wrong)
    if settings.learner.teacher == SERVER:
        require_servable(settings.objective)
    parts = tuple(parts_of(settings, models, cards))
    if not parts:
        raise SettingError("no part has a card: set placement.policy or placement.learner")
    spare = any(not [part for part in parts if card in part.cards] for card in cards)
    if faults := [fault for card in cards if (fault := _overfull(settings, parts, card, spare=spare))]:
        raise SettingError("\n".join(dict.fromkeys(faults)))
    return parts


def parts_of(settings: Settings, models: Models, cards: Sequence[Card]) -> Iterator[Part]:
    """The parts, whether or not they fit."""
    placed, free = settings.placement, list(cards)

    def taken(count: int) -> tuple[Card, ...]:
        found = tuple(free[:count])
        del free[:count]
        return found

    first = tuple(free[:1])
    if placed.policy:
        yield _policy(settings, models.served, taken(placed.policy))
    if placed.judge:
        yield _beside("judge", models.judge, placed.context, taken(placed.judge))
    if placed.teacher:
        yield _beside("teacher", models.teacher, placed.context, taken(placed.teacher))
    if settings.learner.enabled:
        yield Part(
            name="learner",
            cards=taken(placed.learner) or first,
            memory=_learner(settings, models),
            servers=settings.learner.processes // settings.learner.shards,
            over=settings.learner.shards,
        )


def _policy(settings: Settings, model: Model, cards: tuple[Card, ...]) -> Part:
    engine, rank = settings.engine, settings.learner.lora_rank
    if isinstance(engine, EmbeddedSettings):
        longest = min(engine.context_length or 32_768, model.shape.context)
        kept = cards[0].size // 8 if engine.keep_gib is None else int(engine.keep_gib * 2**30)
        dtype = HALF if engine.dtype == "auto" else engine.dtype
        memory = embedded_memory(model.shape, dtype, kept=kept, tokens=longest, rank=rank)
        return Part(name="policy", cards=cards, memory=memory)
    over = len(cards) // len(engine.urls)
    memory = server_memory(
        model.shape,
        model.dtype if engine.dtype == "auto" else engine.dtype,
        tokens=min(settings.placement.context, model.shape.context),
        over=over,
        adapters=ADAPTERS if engine.swap == "adapters" else 0,
        rank=rank,
    )
    return Part(name="policy", cards=cards, memory=memory, servers=len(engine.urls), over=over)


def _beside(name: str, model: Model, context: int, cards: tuple[Card, ...]) -> Part:
    """A server that takes no weights: as many copies as its cards hold, each over as few as it needs."""
    tokens = min(context, model.shape.context)
    ways = [n for n in range(1, len(cards) + 1) if not len(cards) % n and not model.shape.heads % n]
    parts = [
        Part(
            name=name,
            cards=cards,
            memory=server_memory(model.shape, model.dtype, tokens=tokens, over=over),
            servers=len(cards) // over,
            over=over,
        )
        for over in ways
    ]
    return next((part for part in parts if part.needs <= min(card.size for card in cards)), parts[-1])


def _learner(settings: Settings, models: Models) -> Memory:
    learner, objective, shape = settings.learner, settings.objective, models.served.shape
    reads_base = (objective.needs_teacher and learner.teacher == "base") or (
        objective.beta > 0 and learner.reference == "base"
    )
    return learner_memory(
        shape,
        learner,
        tokens=pass_tokens(shape, learner),
        base_beside=reads_base,
        others=[other.shape for other in models.others],
    )


def _overfull(settings: Settings, parts: Sequence[Part], card: Card, *, spare: bool) -> str | None:
    """Why a card does not hold its parts; None if it does."""
    here = [part for part in parts if card in part.cards]
    needed = sum(part.needs * part.cards.count(card) for part in here)  # the CPU's memory counts each place
    if needed <= card.size:
        return None
    counted = "; ".join(
        f"{part.name}: " + ", ".join(f"{what} {size / 1e9:.1f}" for what, size in part.memory.items() if size)
        for part in here
    )
    names = " and ".join(part.name for part in here)
    place = "this machine's memory" if card.name == CPU else "a card"
    return (
        f"{place} of {card.size / 1e9:.0f} GB does not hold the {names}: {needed / 1e9:.1f} GB are needed "
        f"({counted}; and a fifth more for what is not counted); {_remedy(settings, here, spare=spare)}"
    )


def _remedy(settings: Settings, here: Sequence[Part], *, spare: bool) -> str:
    """What would do; `spare`: there is a card without a part."""
    learner = settings.learner
    if here[0].cards[0].name == CPU:
        return "lower placement.context or learner.max_tokens, or take larger memory or fewer processes"
    if len(here) > 1 and spare:
        return "give the learner a card of its own, placement.learner = 1"
    if here[-1].name != "learner":
        return f"give it more cards, placement.{here[0].name}, or lower placement.context"
    if not learner.checkpointing:
        return "set learner.checkpointing = true"
    if learner.dtype != HALF:
        return f'set learner.dtype = "{HALF}"'
    if not learner.lora_rank and learner.shards < learner.processes:
        return f"set learner.shards = {learner.processes}"
    if not learner.lora_rank:
        return "set learner.lora_rank = 16, or give it more cards with more shards"
    return "lower learner.max_tokens, or take larger cards"


def contradictions(settings: Settings, model: Model, cards: int) -> Iterator[str]:
    """What the settings contradict each other in, or the number of cards; `model` is the served one."""
    placed, engine, learner = settings.placement, settings.engine, settings.learner
    if placed.cards > cards:
        yield (
            f"the placement has {placed.cards} cards (policy {placed.policy}, judge {placed.judge}, teacher "
            f"{placed.teacher}, learner {placed.learner}), but there are {cards}"
        )
    if isinstance(engine, ServerSettings):
        yield from _servers_apart(settings, engine, model)
    elif placed.policy != 1:
        yield (
            f"placement.policy is {placed.policy} cards, but the embedded engine sits on one: set "
            "placement.policy = 1, or engine.kind to vllm or sglang"
        )
    if placed.judge and (settings.judge.url is None or not settings.judge.enabled):
        yield (
            f"placement.judge is {placed.judge} cards, but no server judges: set judge.url, or "
            "placement.judge = 0"
        )
    if placed.teacher and (learner.teacher != SERVER or learner.teacher_url is None):
        yield (
            f"placement.teacher is {placed.teacher} cards, but no server of its own teaches: set "
            'learner.teacher = "server" and learner.teacher_url, or placement.teacher = 0'
        )
    if not learner.enabled:
        if placed.learner:
            yield f"placement.learner is {placed.learner} cards, but learner.enabled is false"
        return
    if learner.processes % learner.shards:
        yield f"learner.processes is {learner.processes}, which is no multiple of shards, {learner.shards}"
    if learner.processes != (placed.learner or 1):
        there = f"{placed.learner} cards" if placed.learner else "0, a share of the policy's card"
        yield (
            f"learner.processes is {learner.processes}, but placement.learner is {there}: each process needs "
            "a card of its own, so make them equal"
        )
    if not placed.policy and not placed.learner:
        yield "the learner has no card: placement.policy and placement.learner are 0"


def _servers_apart(settings: Settings, engine: ServerSettings, model: Model) -> Iterator[str]:
    policy, rank = settings.placement.policy, settings.learner.lora_rank
    if policy % len(engine.urls):
        yield (
            f"placement.policy is {policy} cards, which {len(engine.urls)} servers (engine.url) cannot share "
            "evenly"
        )
    elif policy and model.shape.heads % (over := policy // len(engine.urls)):
        yield (
            f"placement.policy gives a server {over} cards, which do not divide the model's "
            f"{model.shape.heads} heads: name more servers in engine.url"
        )
    if settings.learner.enabled and (engine.swap == "adapters") != (rank > 0):
        yield (
            f"engine.swap is {engine.swap!r}, but learner.lora_rank is {rank}: adapters need a rank above 0, "
            "whole weights need 0"
        )
