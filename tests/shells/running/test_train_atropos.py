"""`afterwit train --from atropos`: a server's batches become versions of the home."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from afterwit.build import store_of_home
from afterwit.cli.app import app, main
from plugins.atropos.tests.consumer.groups import plain_group, with_rows
from tests.fakes.atropos_server import fake_atropos


def test_the_flags_of_an_atropos_server_need_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--url", "http://127.0.0.1:1"], ["--steps", "1"]):
        with pytest.raises(SystemExit):
            main(["train", "--home", str(home), *flags])
        assert "--url and --steps need --from" in capsys.readouterr().err


def test_an_atropos_servers_batches_become_versions_of_the_home(model: Path, tmp_path: Path) -> None:
    flags = ["--home", str(tmp_path), "--from", "atropos", "--steps", "2"]
    small = ["learner.batch=4", "learner.lora_rank=0", "learner.device=cpu", "learner.threads=1"]
    with fake_atropos() as server:
        server.batches = [
            [with_rows(plain_group(seed=2 * at + each), 3) for each in range(2)] for at in range(2)
        ]
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            app(
                ["train", str(model), *flags, "--url", server.url, *(f for s in small for f in ("--set", s))],
                standalone_mode=False,
            )
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)
    with store_of_home(tmp_path) as store:
        rows = store.versions()
        (status,) = store.statuses()
    assert [row.number for row in rows] == [0, 1, 2]
    assert rows[2].metrics["rl_samples"] == rows[2].metrics["opd_samples"] == 4.0
    assert (status.stage, status.ok) == ("learn", True)
    assert status.message.startswith("wrote version 2, loss ")
