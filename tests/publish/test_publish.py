"""New versions reach the engine, or the old one stays and the status shows why."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from afterwit.checkpoints.versions import Versions
from afterwit.engines.embedded.engine import CAPABILITIES, EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Capabilities, Facts
from afterwit.errors import (
    EngineError,
    ProbeMismatch,
    SettingError,
    StoreError,
    VersionDamaged,
    VersionsUnavailable,
)
from afterwit.publish.publisher import Publisher, candidates, check_capable, compared, record_served
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.version import Origin, Probe, Version, tainted
from afterwit.worker import WORKING, BackOff, Signals
from tests.checkpoints.test_versions import a_base, fill, grow
from tests.checkpoints.test_versions import version as a_version
from tests.engines.talk import ask, plain_logits, say
from tests.fakes.models import reweighted, tiny_qwen3

IDS = (1, 2, 3)


def version(
    number: int, *, logprobs: Sequence[float] = (-1.0, -2.0), reverts: tuple[int, ...] = ()
) -> Version:
    return Version(
        number=number,
        parent=number - 1,
        origin=Origin.ROLLBACK if reverts else Origin.UPDATE,
        created=0.0,
        reverts=reverts,
        probe=Probe(ids=IDS, logprobs=tuple(logprobs)),
    )


@dataclass
class MemoryCheckpoints:
    """Versions without a disk."""

    versions: dict[int, Version] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    elsewhere: list[Version] = field(default_factory=list)
    away: bool = False
    trimmed: list[tuple[int, list[int]]] = field(default_factory=list)

    def put(self, *versions: Version) -> None:
        self.versions.update({version.number: version for version in versions})

    def follow(self) -> None:
        if self.away:
            raise VersionsUnavailable("s3://bucket does not answer")
        self.put(*self.elsewhere)
        self.elsewhere.clear()

    def numbers(self) -> list[int]:
        return sorted(self.versions)

    def has_weights(self, number: int) -> bool:
        return number not in self.gone

    def get(self, number: int) -> Version | None:
        if number in self.unreadable:
            raise VersionDamaged(f"{number}/manifest.json cannot be read")
        return self.versions.get(number)

    def weights(self, number: int) -> Path:
        if number in self.gone:
            raise SettingError(f"the weights of version {number} are not there")
        return Path(str(number))

    def verify(self, number: int) -> None:
        if number in self.damaged:
            raise VersionDamaged(f"{number}/model.safetensors is not what its manifest says")

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        self.trimmed.append((keep, list(but)))


FACTS = Facts(
    name="pretend",
    model="tiny",
    context_length=64,
    vocabulary=9,
    end_ids=frozenset(),
    dtype="float32",
    fingerprint="",
)


@dataclass
class PretendEngine:
    """Loads anything but `broken`; returns the set probes, -1 and -2 by default."""

    version: int = 0
    facts: Facts = FACTS
    capabilities: Capabilities = CAPABILITIES
    probes: dict[int, list[float]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    staged: int | None = None
    tried: list[int] = field(default_factory=list)

    def live(self, adapter: str) -> int | None:
        assert adapter == "shared"
        return self.version

    async def stage(self, version: int, folder: Path, *, adapter: str) -> None:
        assert (folder, adapter) == (Path(str(version)), "shared")
        self.tried.append(version)
        if version in self.broken:
            raise EngineError("out of memory")
        self.staged = version

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        assert (tuple(ids), times) == (IDS[: self.capabilities.longest_probe], 1.0)
        return self.probes.get(self.staged, [-1.0, -2.0])[: len(ids) - 1]

    async def promote(self) -> None:
        self.version, self.staged = self.staged, None

    async def discard(self) -> None:
        self.staged = None


class House:
    """A publisher over doubles."""

    def __init__(self, **engine: object) -> None:
        self.engine = PretendEngine(**engine)
        self.checkpoints = MemoryCheckpoints()
        self.recorded: list[int] = []
        self.unknown: set[int] = set()
        self.publisher = Publisher(
            engine=self.engine,
            checkpoints=self.checkpoints,
            published=self.record,
            dtype="float32",
            keep_versions=5,
        )

    async def record(self, number: int) -> None:
        if number in self.unknown:
            raise StoreError(f"there is no version {number}")
        self.recorded.append(number)


async def test_the_newest_version_is_staged_probed_promoted_and_recorded() -> None:
    house = House()
    assert not await house.publisher.step()
    house.checkpoints.put(version(1), version(2))
    assert await house.publisher.step()
    assert (house.engine.version, house.recorded, house.engine.tried) == (2, [2], [2])
    assert not await house.publisher.step()


async def test_what_other_machines_wrote_is_followed_and_this_disk_keeps_what_is_served() -> None:
    house = House()
    house.checkpoints.elsewhere = [version(1), version(2)]
    assert await house.publisher.step()
    assert (house.engine.version, house.checkpoints.trimmed) == (2, [(5, [2])])


async def test_while_other_machines_versions_cannot_be_seen_those_of_this_disk_are_served() -> None:
    house = House()
    house.checkpoints.away = True
    house.checkpoints.elsewhere = [version(2)]
    house.checkpoints.put(version(1))
    for _ in range(2):
        with pytest.raises(VersionsUnavailable, match="does not answer"):
            await house.publisher.step()
    assert house.recorded == [1]
    house.checkpoints.away = False
    assert await house.publisher.step()
    assert house.recorded == [1, 2]


async def test_a_probe_that_disagrees_keeps_the_old_version_and_is_not_tried_again() -> None:
    house = House(probes={2: [-1.0, -2.5]})
    house.checkpoints.put(version(1))
    await house.publisher.step()
    house.checkpoints.put(version(2))
    with pytest.raises(ProbeMismatch, match=r"version 2 .* differ .* 0\.25 on average"):
        await house.publisher.step()
    assert (house.engine.version, house.engine.staged, house.recorded) == (1, None, [1])
    assert not await house.publisher.step()
    house.checkpoints.put(version(3))
    assert await house.publisher.step()
    assert house.engine.version == 3


async def test_a_version_that_does_not_load_is_tried_again() -> None:
    house = House(broken={1})
    house.checkpoints.put(version(1))
    for _ in range(2):
        with pytest.raises(EngineError, match="out of memory"):
            await house.publisher.step()
    assert house.engine.version == 0
    house.engine.broken.clear()
    assert await house.publisher.step()
    assert house.recorded == [1]


async def test_a_fresh_engine_takes_the_newest_that_agrees_and_says_what_was_wrong_with_newer_ones() -> None:
    house = House(probes={3: [0.0, 0.0]})
    house.checkpoints.put(version(1), version(2), version(3))
    with pytest.raises(ProbeMismatch, match="version 3"):
        await house.publisher.step()
    assert (house.engine.version, house.recorded) == (2, [2])


async def test_what_was_taken_back_is_not_served_even_if_the_rollback_does_not_agree() -> None:
    house = House(probes={4: [0.0, 0.0]})
    house.checkpoints.put(version(1), version(2), version(3), version(4, reverts=(2, 3)))
    with pytest.raises(ProbeMismatch):
        await house.publisher.step()
    assert house.engine.version == 1


@pytest.mark.parametrize(
    ("changes", "told"), [({}, True), ({"origin": Origin.ROLLBACK, "restores": 0}, False)]
)
async def test_a_probe_that_cannot_tell_a_version_from_the_base_is_logged_unless_it_is_the_base(
    changes: dict[str, Any], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    house = House()
    house.checkpoints.put(version(0), replace(version(1), **changes))
    assert await house.publisher.step()
    assert ("cannot tell version 1 from the base" in caplog.text) is told


async def test_no_version_from_before_a_session_was_forgotten_is_served_instead() -> None:
    house = House(probes={3: [0.0, 0.0]})
    house.checkpoints.put(version(1), version(2), replace(version(3), forgets=("talk",)))
    with pytest.raises(ProbeMismatch):
        await house.publisher.step()
    assert house.engine.version == 0


@pytest.mark.parametrize("later", [{"reverts": (1, 2)}, {"forgets": ("talk",)}])
async def test_what_a_version_took_back_is_not_served_if_its_weights_are_gone(later: dict[str, Any]) -> None:
    house = House()
    house.checkpoints.put(version(1), version(2), replace(version(3), **later))
    house.checkpoints.gone = {3}
    with pytest.raises(VersionDamaged, match="version 3 is not served, an older one is: the weights"):
        await house.publisher.step()
    assert house.engine.version == 0


async def test_a_manifest_that_cannot_be_read_keeps_only_older_versions_from_being_served() -> None:
    house = House()
    house.checkpoints.put(version(1), version(2), version(3), version(4))
    house.checkpoints.unreadable = {2}
    assert await house.publisher.step()
    assert house.recorded == [4]
    house = House()
    house.checkpoints.put(version(1), version(2))
    house.checkpoints.unreadable = {2}  # it may have taken version 1 back
    with pytest.raises(VersionDamaged, match="2/manifest"):
        await house.publisher.step()
    assert house.recorded == []


async def test_a_store_that_lags_behind_the_manifest_is_told_later() -> None:
    house = House()
    house.unknown = {1}
    house.checkpoints.put(version(1))
    with pytest.raises(StoreError):
        await house.publisher.step()
    assert (house.engine.version, house.recorded) == (1, [])
    house.unknown.clear()
    await house.publisher.step()
    assert house.recorded == [1]
    assert house.engine.tried == [1]


async def test_a_learner_that_died_before_it_deleted_forgotten_weights_leaves_it_to_whoever_serves(
    tmp_path: Path,
) -> None:
    versions = Versions(root=tmp_path / "versions", base=a_base(tmp_path))
    grow(versions, 2)
    without = a_version(3, turns=(), origin=Origin.REPLAY, begins=1, forgets=("talk",), without=("turn2",))
    with versions.writing():
        versions.write(without, fill)
    store = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    await store.call(lambda store: store.order_forgetting("talk", replay=True, now=1.0))
    await record_served(store, versions, 3)
    assert await store.call(lambda store: store.forget_orders()) == []
    assert not tainted(versions.all(), versions.has_weights)
    await store.close()


async def test_an_older_version_is_served_for_one_whose_weights_are_gone_and_the_health_tells() -> None:
    house = House()
    house.checkpoints.put(version(1), version(2))
    house.checkpoints.gone = {2}
    with pytest.raises(VersionDamaged, match="version 2 is not served, an older one is: the weights"):
        await house.publisher.step()
    assert house.engine.version == 1


def test_versions_without_weights_are_no_candidates() -> None:
    checkpoints = MemoryCheckpoints(gone={2})
    checkpoints.put(version(1), version(2), version(3))
    assert [found.number for found in candidates(checkpoints, 0, frozenset())] == [3, 1]
    assert [found.number for found in candidates(checkpoints, 1, frozenset({3}))] == []


@pytest.mark.parametrize("served", [[-1.0, -2.1], [float("nan"), -2.0], [-1.0, float("-inf")], [-1.0], []])
async def test_an_answer_that_is_off_not_finite_or_of_another_length_is_a_mismatch(
    served: list[float],
) -> None:
    house = House(probes={1: served})
    house.checkpoints.put(version(1))
    with pytest.raises(ProbeMismatch, match="version 1 is not served"):
        await house.publisher.step()
    assert house.engine.version == 0


@pytest.mark.parametrize("said", [0, 1, 62, 64])
def test_an_engine_that_answers_for_another_number_of_ids_is_refused(said: int) -> None:
    expected = Probe(ids=tuple(range(64)), logprobs=(-1.0,) * 63)
    with pytest.raises(ProbeMismatch, match=f"{said} log-probs were given for 63 tokens"):
        compared(expected, [-1.0] * said, others={}, earlier={}, dtypes=["float32"])


async def test_the_alarm_stays_until_another_version_is_served() -> None:
    house, signals = House(probes={1: [0.0, 0.0]}), Signals()
    house.checkpoints.put(version(1))
    told: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()

    async def report(ok: bool, sentence: str) -> None:
        told.put_nowait((ok, sentence))

    back_off = BackOff(base_s=0.001, max_s=0.001, random=lambda: 0.5)
    loop = asyncio.create_task(house.publisher.run(signals, report=report, poll_s=0.001, back_off=back_off))
    ok, sentence = await told.get()
    assert not ok
    assert "version 1 is not served" in sentence
    house.checkpoints.put(version(2))
    assert await told.get() == (True, WORKING)
    assert house.engine.version == 2
    signals.stop.set()
    await loop


async def health_of(house: House) -> list[tuple[bool, str]]:
    """The stage's reports from its start until it has polled twice after the first report."""
    told: list[tuple[bool, str]] = []
    signals, polls, loop = Signals(), 0, asyncio.get_running_loop()

    async def report(ok: bool, sentence: str) -> None:
        told.append((ok, sentence))

    look = house.checkpoints.numbers

    def numbers() -> list[int]:
        nonlocal polls
        polls += bool(told)
        if polls == 2:
            loop.call_soon_threadsafe(signals.stop.set)
        return look()

    house.checkpoints.numbers = numbers  # type: ignore[method-assign]
    back_off = BackOff(base_s=0.001, max_s=0.001, random=lambda: 0.5)
    await house.publisher.run(signals, report=report, poll_s=0.001, back_off=back_off)
    return told


@pytest.mark.parametrize("fault", ["damaged", "refused"])
async def test_a_newest_version_that_was_skipped_at_the_start_stays_in_the_status(fault: str) -> None:
    house = House(probes={2: [0.0, 0.0]} if fault == "refused" else {})
    house.checkpoints.put(version(1), version(2))
    house.checkpoints.damaged = {2} if fault == "damaged" else set()
    await house.publisher.start()
    assert house.engine.version == 1
    told = await health_of(house)
    assert [ok for ok, _ in told] == [False]
    assert "version 2 is not served, an older one is" in told[0][1]


async def test_damaged_weights_never_reach_the_engine_and_are_served_once_they_are_whole() -> None:
    house = House()
    house.checkpoints.put(version(1), version(2))
    house.checkpoints.damaged = {2}
    with pytest.raises(VersionDamaged, match=r"model\.safetensors is not what its manifest says"):
        await house.publisher.step()
    assert (house.engine.tried, house.engine.version) == ([1], 1)
    house.checkpoints.damaged.clear()
    assert await house.publisher.step()
    assert house.engine.version == 2


async def test_an_engine_that_scores_short_prompts_is_probed_with_as_many_ids() -> None:
    house = House(capabilities=replace(CAPABILITIES, longest_probe=2), probes={2: [-1.5]})
    house.checkpoints.put(version(1))
    assert await house.publisher.step()
    house.checkpoints.put(version(2))
    with pytest.raises(ProbeMismatch):
        await house.publisher.step()


def test_amplified_answers_that_overflow_are_left_out() -> None:
    own = Probe(ids=(1, 2, 3), logprobs=(-1.0, -2.0), amplified=(-3.0, -9.0))
    base = Probe(ids=(1, 2, 3), logprobs=(-1.1, -2.1), amplified=(-1.1, -2.1))
    halves = ("float16", "float16")
    nan = float("nan")
    seen = compared(own, [-1.0, -2.0], [-3.0, nan], others={"the base": base}, earlier={}, dtypes=halves)
    assert seen.shares == {}
    seen = compared(own, [-1.0, -2.0], [-3.0, -9.0], others={"the base": base}, earlier={}, dtypes=halves)
    assert seen.shares["the base"].value == pytest.approx(1.0)


def test_an_engine_that_cannot_take_what_the_learner_writes_is_a_setting_error() -> None:
    whole, adapters = replace(CAPABILITIES, adapters=False), replace(CAPABILITIES, whole_weights=False)
    exact = ("float32", "float32")
    check_capable(whole, lora_rank=0, dtypes=exact)
    check_capable(adapters, lora_rank=8, dtypes=exact)
    with pytest.raises(SettingError, match="lora_rank to 0"):
        check_capable(whole, lora_rank=8, dtypes=exact)
    with pytest.raises(SettingError, match="lora_rank above 0"):
        check_capable(adapters, lora_rank=0, dtypes=exact)


def test_whole_weights_are_served_in_the_precision_that_they_are_trained_for() -> None:
    for rank, dtypes in (
        (0, ("bfloat16", "bfloat16")),
        (0, ("float32", "bfloat16")),
        (8, ("bfloat16", "float32")),
    ):
        check_capable(CAPABILITIES, lora_rank=rank, dtypes=dtypes)
    with pytest.raises(SettingError, match="bfloat16, and would round away"):
        check_capable(CAPABILITIES, lora_rank=0, dtypes=("bfloat16", "float32"))


async def test_a_restarted_engine_picks_up_the_newest_version_and_answers_with_it(tmp_path: Path) -> None:
    base = tiny_qwen3(tmp_path / "base")
    ids = tuple(range(20, 84))
    checkpoints = FolderCheckpoints(tmp_path)
    for number in (1, 2):
        reweighted(checkpoints.weights(number), base, seed=number)
        plain = plain_logits(checkpoints.weights(number), ids)[:-1].log_softmax(-1)
        learner = plain.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        checkpoints.put(version_of(number, ids, learner))
    recorded: list[int] = []

    async def record(number: int) -> None:
        recorded.append(number)

    for _ in range(2):
        engine = EmbeddedEngine.load(base, EmbeddedSettings())
        publisher = Publisher(
            engine=engine, checkpoints=checkpoints, published=record, dtype="float32", keep_versions=5
        )
        assert await publisher.step()
        assert set((await say(engine, ask(ids))).versions) == {2}
        await engine.close()
    assert recorded == [2, 2]


class FolderCheckpoints(MemoryCheckpoints):
    """Manifests in memory, weights in folders."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def weights(self, number: int) -> Path:
        return self.root / str(number)


def version_of(number: int, ids: tuple[int, ...], logprobs: list[float]) -> Version:
    probe = Probe(ids=ids, logprobs=tuple(logprobs))
    return Version(number=number, parent=number - 1, origin=Origin.UPDATE, created=0.0, probe=probe)
