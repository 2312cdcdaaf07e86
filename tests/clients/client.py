"""One client: what is installed, how it is pointed at the gateway, and how a person speaks to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.errand import ERRANDS, Errand
from tests.clients.install import Installed, Npm, Pip
from tests.clients.place import Place

KEEP, READ, ADD = ERRANDS
DRIVERS = Path(__file__).parent / "drivers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An entry of the table."""

    name: str
    packages: Pip | Npm
    configure: Callable[[Place, Installed], Sequence[Sequence[str]]]
    """Writes the configuration; returns commands that are to be run once."""
    speak: Callable[[Place, Installed, int, Sequence[str]], Sequence[str]]
    """The command for a run: its number, and the person's messages in order."""
    runs: tuple[tuple[Errand, ...], ...] = ((KEEP,), (READ,), (ADD,))
    """The errands of each run. Every run but the first resumes the conversation."""
    room: str | None = None
    """The folder that it is installed in, if others share it; None: one of its name."""

    @property
    def place_of_install(self) -> str:
        return self.room or self.name


def driven(driver: str, *packages: str) -> Client:
    """An SDK: a program of ours calls it, two messages in one process, the third after a resume."""

    def speak(place: Place, installed: Installed, run: int, messages: Sequence[str]) -> Sequence[str]:
        program = [installed.command("python"), str(DRIVERS / f"{driver}.py")]
        return [*program, place.url, str(place.home / "history.json"), *messages]

    return Client(
        name=driver.replace("_", "-"),
        packages=Pip(packages=packages),
        room=packages[0].partition("==")[0],
        configure=lambda place, installed: (),
        speak=speak,
        runs=((KEEP, READ), (ADD,)),
    )
