"""`afterwit train --from atropos`: a server's batches become versions of the home."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.build import store_of_home, store_of_model, versions_of
from afterwit.cli.app import app, main
from afterwit.config import load
from afterwit.errors import TurnNotFound, VersionsUnavailable
from afterwit.home.home import remember_model
from afterwit.learning.stage import Learn
from afterwit.running.train import learn
from afterwit.store import Pause
from afterwit.version import Origin
from plugins.atropos.tests.consumer.groups import plain_group, with_rows
from tests.fakes.atropos_server import fake_atropos
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.renderers import renderer_of


def test_the_flags_of_an_atropos_server_need_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--url", "http://127.0.0.1:1"], ["--steps", "1"]):
        with pytest.raises(SystemExit):
            main(["train", "--home", str(home), *flags])
        assert "--url and --steps need --from" in capsys.readouterr().err


def train(model: Path, home: Path, *settings: str, steps: int) -> None:
    """`afterwit train --from atropos` on `steps` batches of a fake server."""
    flags = ["--home", str(home), "--from", "atropos", "--steps", str(steps)]
    small = ["learner.batch=4", "learner.lora_rank=0", "learner.device=cpu", "learner.threads=1", *settings]
    with fake_atropos() as server:
        server.batches = [
            [with_rows(plain_group(seed=2 * at + each), 3) for each in range(2)] for at in range(steps)
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


def test_an_atropos_servers_batches_become_versions_of_the_home(model: Path, tmp_path: Path) -> None:
    train(model, tmp_path, steps=2)
    with store_of_home(tmp_path) as store:
        rows = store.versions()
        (status,) = store.statuses()
    assert [row.number for row in rows] == [0, 1, 2]
    assert rows[2].metrics["rl_samples"] == rows[2].metrics["opd_samples"] == 4.0
    assert (status.stage, status.ok) == ("learn", True)
    assert status.message.startswith("wrote version 2, loss ")


def test_weights_too_old_are_deleted(model: Path, tmp_path: Path) -> None:
    train(model, tmp_path, "learner.keep_versions=1", steps=5)
    versions = versions_of(tmp_path, model)
    assert [number for number in versions.numbers() if not versions.has_weights(number)] == [1, 3]


def test_a_session_is_forgotten_before_the_next_batch(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[gateway]\nmax_tokens = 8\n[learner]\nlora_rank = 0\nmismatch_alarm = 100.0\n"
    )
    settings = load(home=tmp_path, below={"model": str(model)}, environment={})
    remember_model(tmp_path, model)
    with closing(store_of_model(settings, tmp_path, model)) as store:
        sample = a_sample(renderer_of(model), 0)
        store_judged(store, [replace(sample, turn=replace(sample.turn, session="talk"))])
    learn(settings, tmp_path, stop=lambda: False, forever=False, wait=False)
    with closing(store_of_model(settings, tmp_path, model)) as store:
        assert [row.number for row in store.versions()] == [0, 1]
        store.order_forgetting("talk", replay=True, now=2.0)
        train(model, tmp_path, steps=2)
        assert store.forget_orders() == []
        origins = [row.origin for row in store.versions()]
        with pytest.raises(TurnNotFound):
            store.turn("turn0000")
    assert origins == [Origin.BASE, Origin.UPDATE, Origin.ROLLBACK, Origin.UPDATE, Origin.UPDATE]
    assert not versions_of(tmp_path, model).has_weights(1)


def test_while_the_folder_of_versions_is_away_no_batch_is_fetched_and_none_is_lost(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settle, away = Learn.settle, iter([True, True])

    def settled(stage: Learn, stop: Callable[[], bool]) -> Pause | None:
        if next(away, False):
            raise VersionsUnavailable("the bucket does not answer")
        return settle(stage, stop)

    monkeypatch.setattr(Learn, "settle", settled)
    train(model, tmp_path, "learner.poll_s=0.01", steps=1)
    with store_of_home(tmp_path) as store:
        assert [row.number for row in store.versions()] == [0, 1]
    assert caplog.text.count("the bucket does not answer; no batch is fetched") == 1
