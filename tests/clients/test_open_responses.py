"""Open Responses: every kind of request that its compliance program sends is answered in the form of that
specification, and the program itself, where there is a checkout of it, passes but for what is not served."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clients.client import DRIVERS
from tests.clients.errand import messages_of, tools_of
from tests.clients.install import Installed, NotInstallable, Npm, Pip, install
from tests.clients.place import Place
from tests.clients.world import gateway

pytestmark = [pytest.mark.clients, pytest.mark.slow]

CHECKOUT = "OPEN_RESPONSES"
SERVED = (
    "basic-response",
    "streaming-response",
    "system-prompt",
    "tool-calling",
    "image-input",
    "multi-turn",
)
"""The program's tests that each of its versions has."""
NOT_SERVED = ("websocket-", "compact-")
"""How the ids of the program's tests begin that need what docs/agents.md lists as not served."""


@pytest.fixture
async def place(tmp_path: Path, model: Path, until: float, scratch: Path) -> AsyncIterator[Place]:
    async with gateway(tmp_path, model, respond) as world:
        made = Place(folder=tmp_path, url=world.url, until=until, scratch=scratch)
        made.make()
        yield made


def respond(prompt: str) -> str:
    """The model: it calls the first tool, if there is one that has not answered."""
    tools, last = tools_of(prompt), messages_of(prompt)[-1]
    if not tools or last.tool_result:
        return "<think>\nThat is easy.\n</think>\n\nIt is Rome."
    call = json.dumps({"name": min(tools), "arguments": {"location": "Rome"}}) + "\n</tool_call>"
    if "by the tool" in last.text:  # its beginning is forced
        return call.partition('"arguments": {')[2]
    return f"<think>\nThe tool knows.\n</think>\n\n<tool_call>\n{call}"


def installed(name: str, packages: Pip | Npm, until: float) -> Installed:
    try:
        return install(name, packages, until=until)
    except NotInstallable as reason:
        pytest.skip(f"{name} could not be installed here: {reason}")


async def test_every_kind_of_request_is_answered_in_the_form_of_open_responses(place: Place) -> None:
    types = installed("openresponses-types", Pip(packages=("openresponses-types==2.4.0",)), place.until)
    await place.run([types.command("python"), str(DRIVERS / "open_responses.py"), place.url])


async def test_the_compliance_program_passes_but_for_what_is_not_served(place: Place) -> None:
    checkout = os.environ.get(CHECKOUT)
    if checkout is None:
        source = "https://github.com/openresponses/openresponses, with its packages"
        pytest.skip(f"{CHECKOUT} names no checkout of {source}")
    bun = installed("bun", Npm(packages=("bun@1.4.5",)), place.until).command("bun")
    program = [bun, "run", str(Path(checkout, "bin", "compliance-test.ts"))]
    options = ["--base-url", place.url, "--api-key", "none", "--model", "afterwit", "--json"]
    despite = ["sh", "-c", '"$@" || true', "sh"]  # it ends with 1 if a test fails
    results = json.loads((await place.run([*despite, *program, *options])).out)["results"]
    ended = {result["id"]: result["status"] for result in results}
    failed = [result for result in results if result["status"] == "failed"]
    assert [result for result in failed if not result["id"].startswith(NOT_SERVED)] == []
    assert {ended[id] for id in SERVED} == {"passed"}
