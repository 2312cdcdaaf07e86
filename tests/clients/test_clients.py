"""Each client runs its errands: a tool call that it really executes, a second message, a resumed session.

It prints the model's answers, and the store holds every turn in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clients.captured import check
from tests.clients.client import Client
from tests.clients.install import Installed, NotInstallable, install
from tests.clients.place import Place
from tests.clients.table import CLIENTS
from tests.clients.world import gateway

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="session")
def installs(request: pytest.FixtureRequest, until: float) -> Iterator[Mapping[str, Future[Installed]]]:
    """Of each folder. One is installed while the clients before it run."""
    chosen = [item.callspec.params["client"] for item in request.session.items if hasattr(item, "callspec")]
    clients = {each.place_of_install: each for each in chosen if isinstance(each, Client)}
    with ThreadPoolExecutor(1) as pool:
        yield {name: pool.submit(install, name, each.packages, until=until) for name, each in clients.items()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
async def test_a_session_of_a_real_client_is_captured(
    client: Client,
    tmp_path: Path,
    model: Path,
    until: float,
    scratch: Path,
    installs: Mapping[str, Future[Installed]],
) -> None:
    try:
        installed = installs[client.place_of_install].result()
    except NotInstallable as reason:
        pytest.skip(f"{client.name} could not be installed here: {reason}")
    async with gateway(tmp_path, model) as world:
        place = Place(folder=tmp_path, url=world.url, until=until, scratch=scratch)
        place.make()
        for command in client.configure(place, installed):
            await place.run(command)
        for run, errands in enumerate(client.runs):
            said = await place.run(client.speak(place, installed, run, [errand.asked for errand in errands]))
            for errand in errands:
                assert errand.answer in said.out, f"{said.out}\n{said.err}"
        done = [errand for errands in client.runs for errand in errands]
        check(await world.records(), done, world.model)
    assert (place.work / "note.txt").read_text() == done[-1].note
    assert place.processes() == [], "a process of the client is left behind"
