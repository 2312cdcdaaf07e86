"""The consumer against Atropos's own server, as a process: what it sends is what the tests' double sends."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from afterwit_atropos.server import AtroposServer, BatchLost, NotRegistered, Registration
from plugins.atropos.tests.consumer.groups import plain_group, with_rows
from plugins.atropos.tests.consumer.test_stage import Bench
from tests.fakes.models import tiny_qwen3
from tests.servers.server import Launch, Server

pytestmark = [pytest.mark.slow, pytest.mark.atropos]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(Launch(server="atropos", model=tmp_path), tmp_path / "run-api.log")
    found.start()
    yield found
    found.end()


@pytest.fixture
def bench(server: Server, tmp_path: Path) -> Bench:
    torch.set_num_threads(1)
    return Bench(tmp_path / "versions", tiny_qwen3(tmp_path / "base"), server.url)


def post(server: Server, path: str, body: Any) -> Any:
    """As an environment does. Infinities go out as the public library sends them."""
    request = urllib.request.Request(
        server.url + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def send(server: Server, groups: Sequence[Any]) -> None:
    """An environment that has registered sends groups of two."""
    facts = {"max_token_length": 64, "desired_name": "test", "weight": 1.0, "group_size": 2}
    environment = post(server, "/register-env", facts)
    assert environment["status"] == "success"
    for group in groups:
        said = post(server, "/scored_data", group | {"env_id": environment["env_id"]})
        assert said["status"] == "received"


def trainer(server: Server, size: int = 4) -> AtroposServer:
    found = AtroposServer(url=server.url, timeout_s=60.0)
    found.register(
        Registration(batch_size=size, max_token_len=64, starting_step=0, checkpoint_dir="", num_steps=10)
    )
    return found


@pytest.mark.parametrize("k", [0, 1, 3])
def test_groups_of_an_environment_become_versions(server: Server, bench: Bench, k: int) -> None:
    made = [plain_group(seed=seed) for seed in range(4)]
    groups = [with_rows(group, k) for group in made] if k else made
    bench.on_rest = lambda times: send(server, groups) if times == 1 else time.sleep(0.1)
    assert bench.run(2, rests=100) == 2
    for number in (1, 2):
        version = bench.versions.get(number)
        assert version is not None
        assert (version.metrics["samples"], version.metrics["groups"]) == (4.0, 2.0)
        assert version.metrics["opd_samples"] == (4.0 if k else 0.0)


def test_a_server_that_is_killed_and_started_again_is_registered_with_again(
    server: Server, bench: Bench
) -> None:
    def happens(times: int) -> None:
        if times == 1:
            server.kill()
        elif times == 3:
            server.start()
        elif times == 5:
            send(server, [plain_group(), plain_group(seed=1)])
        time.sleep(0.1)

    bench.on_rest = happens
    assert bench.run(1, rests=100) == 1
    assert bench.heard("waiting for the server")
    assert sum(message.startswith("registered with") for _, message in bench.said) == 2


def test_an_infinity_loses_its_batch_and_the_next_one_trains(server: Server, bench: Bench) -> None:
    def happens(times: int) -> None:
        if times == 1:
            poisoned = plain_group(scores=(0.0, float("inf")))
            send(server, [poisoned, plain_group(seed=1)])
        elif times == 3:
            send(server, [plain_group(seed=2), plain_group(seed=3)])
        time.sleep(0.1)

    bench.on_rest = happens
    assert bench.run(1, rests=100) == 1
    assert bench.heard("a batch is lost: the server failed with 500")


def test_a_server_that_was_sent_groups_too_early_is_told_to_forget_them(server: Server, bench: Bench) -> None:
    post(server, "/scored_data", plain_group())
    bench.on_rest = lambda times: send(server, [plain_group(), plain_group(seed=1)]) if times == 1 else None
    assert bench.run(1, rests=100) == 1


def test_the_batch_that_was_finished_last_comes_first_and_unknown_fields_do_not_come(server: Server) -> None:
    consumer = trainer(server, size=2)
    assert consumer.batch() is None
    assert consumer.waiting() == 0
    scores = [(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)]
    send(server, [plain_group(scores=each, unknown=1, group_overrides={"kept": 1}) for each in scores])
    batches = [consumer.batch() for _ in scores]
    assert [batch[0]["scores"][1] for batch in batches if batch] == [3.0, 2.0, 1.0]
    (group,) = batches[0] or ()
    assert "unknown" not in group
    assert group["group_overrides"] == {"kept": 1}


def test_before_any_trainer_there_is_no_batch(server: Server) -> None:
    with pytest.raises(NotRegistered):
        AtroposServer(url=server.url, timeout_s=60.0).batch()


def test_a_lost_batch_is_told_from_a_server_that_is_away(server: Server) -> None:
    consumer = trainer(server, size=2)
    consumer.batch()
    send(server, [plain_group(scores=(0.0, float("nan")))])
    with pytest.raises(BatchLost, match="500"):
        consumer.batch()
    assert consumer.batch() is None
