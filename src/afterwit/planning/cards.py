"""The cards of this machine, or those that somebody names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from afterwit.errors import SettingError
from afterwit.ranges import at_least, one_of_its_choices

ASKED = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")


MIB = 2**20


VISIBLE = "CUDA_VISIBLE_DEVICES"


AS_LISTED = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Has CUDA number the cards as nvidia-smi does, also where they are of different kinds."""


CPU = ""
"""The name of the machine's memory, which stands for every card under `placement.device = "cpu"`."""


OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")


OTHER_MAKE = Path("/dev/kfd")
"""There if the machine has cards of AMD."""


NAME_THEM = 'name them, such as `afterwit plan --card 80GB --cards 8`, or set placement.device = "cpu"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """`name` is what CUDA_VISIBLE_DEVICES calls it; `size` is in bytes."""

    name: str
    size: int


def visible(cards: Sequence[Card]) -> dict[str, str]:
    """The environment variables with which a process sees these cards alone; of the CPU, none."""
    names = ",".join(dict.fromkeys(card.name for card in cards))
    return {VISIBLE: names} | (AS_LISTED if names else {})


def cards_here(placed: PlacementSettings, environment: Mapping[str, str] = os.environ) -> tuple[Card, ...]:
    """This machine's cards, or its memory as often as the placement has parts of it.

    SettingError if there are none.
    """
    if placed.device == "cuda":
        return found_cards(environment)
    return (memory_here(),) * placed.cards


def card_here(environment: Mapping[str, str] = os.environ) -> Card | None:
    """Where a server without a placement computes: the first card, or this machine's memory if it has none.

    None where it has cards of a make that is not asked here.
    """
    if OTHER_MAKE.exists():
        return None
    try:
        return found_cards(environment)[0]
    except SettingError:
        return memory_here()


def memory_here() -> Card:
    """This machine's memory, or as much of it as the container may take."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # there is no container, or it has no limit
        size = min(size, int(OF_CONTAINER.read_text()))
    return Card(name=CPU, size=size)


def named_cards(size: str, count: int) -> tuple[Card, ...]:
    """`count` cards of a size such as 80GB or 80. SettingError if it is no size."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB)?", size.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise SettingError(f"--card {size}: write its memory in GB, such as 80GB")
    unit = 2**30 if (found[2] or "").lower() == "gib" else 10**9
    return tuple(Card(name=str(index), size=int(float(found[1]) * unit)) for index in range(count))


def found_cards(environment: Mapping[str, str]) -> tuple[Card, ...]:
    """The cards that nvidia-smi lists and the environment lets through. SettingError if there are none."""
    if shutil.which(ASKED[0], path=environment.get("PATH")) is None:
        raise SettingError(f"no nvidia-smi is here to say which cards there are: {NAME_THEM}")
    asked = subprocess.run(ASKED, capture_output=True, text=True, check=False, env=dict(environment))
    if asked.returncode:
        raise SettingError(f"nvidia-smi does not say which cards there are: {NAME_THEM}")
    return listed_cards(asked.stdout, environment.get(VISIBLE))


def listed_cards(listing: str, visible: str | None) -> tuple[Card, ...]:
    """The cards of nvidia-smi's lines of index, uuid and MiB; `visible` is CUDA_VISIBLE_DEVICES, if set.

    SettingError if none is left, or if a card's memory is no number.
    """
    cards: dict[str, Card] = {}
    for line in listing.strip().splitlines():
        index, uuid, size = (part.strip() for part in line.split(","))
        if not size.isdigit():
            raise SettingError(f"nvidia-smi says that card {index} has {size} of memory: {NAME_THEM}")
        cards[index] = cards[uuid] = Card(name=index, size=int(size) * MIB)
    wanted = [name.strip() for name in visible.split(",")] if visible is not None else list(cards)
    found = tuple(dict.fromkeys(cards[name] for name in wanted if name in cards))
    if not found:
        seen = "" if visible is None else f" that {VISIBLE}={visible} lets through"
        raise SettingError(f"there is no card here{seen}: {NAME_THEM}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """How many cards of a machine each part has. `afterwit plan` computes with it; if the section is there,
    `afterwit up` starts all parts so."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: no part gets a card. The numbers below then count servers and processes, which all share the
    machine's memory."""
    policy: int = 1
    """Cards of the engines that serve, shared out evenly over the servers of `engine.url`. 0: they are on
    other machines."""
    judge: int = 0
    """Cards of the judge's server at `judge.url`. 0: it is elsewhere, or the served model judges."""
    teacher: int = 0
    """Cards of the teacher's server at `learner.teacher_url`. 0: it is elsewhere, or the learner holds it."""
    learner: int = 0
    """Cards of the learner, one for each of `learner.processes`. 0: it shares the policy's card."""
    judge_model: str | None = None
    """Folder or hub id of the model that the judge's server loads. Not given: the served model."""
    teacher_model: str | None = None
    """Folder or hub id of the model that the teacher's server loads. Not given: the served model."""
    context: int = 32_768
    """Tokens of the longest request: every engine has room for its keys and values, or for the model's own
    context if that is shorter."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 0, "policy", "judge", "teacher", "learner")
        at_least(self, 1, "context")

    @property
    def cards(self) -> int:
        """Of all parts."""
        return self.policy + self.judge + self.teacher + self.learner
