"""Whatever happens in whatever order, the store agrees with a plain model in memory.

Among what happens: the learner dies before, between and after its manifest's rename, checkpoints get lost,
the store is closed and opened again, and everything is killed at once.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from afterwit.lifecycle import (
    REOPENED_BY_NEXT_STATE,
    REOPENED_ON_MAIN_LINE,
    Reason,
    ReasonClass,
    State,
)
from afterwit.turn import Kind, Message
from afterwit.verdict import Feedback
from afterwit.version import Origin, Version
from tests.store.databases import DATABASES, KINDS, Database
from tests.store.examples import HINTED, a_version, add

LEASE = 10.0
TURNS = 8
owners = st.sampled_from(["one", "two"])
verdict_reasons = st.sampled_from([Reason.NO_SIGNAL, Reason.JUDGE_FAILED])
found_out = st.sampled_from(
    [Kind.MAIN, Kind.SIDE, Kind.UNKNOWN, Reason.SUPERSEDED, Reason.STALE, Reason.LEARNER_FAILED]
)
"""No recorded turn turns out to be practice."""
reasons = st.sampled_from([None] * 5 + [Reason.SIDE_TURN, Reason.CLIENT_LEFT, Reason.UNKNOWN_BRANCH])


@dataclass
class Card:
    """A turn as the model sees it: what a person would write on a card."""

    state: State
    reason: Reason | None
    born: float
    kind: Kind = Kind.MAIN
    said: str | None = None
    changes: int = 0
    judged_at: int | None = None
    """The change that the verdict saw."""
    trains: bool = False
    """Whether the verdict gave it a term."""
    holder: str | None = None
    until: float = 0.0
    seen: int = 0
    """The change that the holder saw when it claimed."""
    retry_at: float = 0.0

    def go(self, state: State, reason: Reason | None = None) -> None:
        self.state, self.reason, self.holder, self.retry_at = state, reason, None, 0.0

    def ends(self, reason: Reason) -> None:
        if self.state not in (State.TRAINED, State.SKIPPED):
            self.go(State.SKIPPED, reason)

    def let_go(self) -> None:
        self.holder = None
        if self.state is State.JUDGED and self.changes != self.seen:
            self.go(State.ANSWERED)

    def hears(self, now: float) -> None:
        self.changes += 1
        in_training = self.state is State.JUDGED and self.holder is not None and self.until > now
        reopened = self.reason in REOPENED_BY_NEXT_STATE
        reopened |= self.reason is Reason.UNKNOWN_BRANCH and self.kind is Kind.MAIN
        waits = self.state in (State.OPEN, State.JUDGED) and not in_training
        if waits or (self.state is State.SKIPPED and reopened):
            self.go(State.ANSWERED)


@dataclass
class Folder:
    """The checkpoint folder: manifests in the order they were renamed into place."""

    manifests: list[Version] = field(default_factory=list)

    @property
    def newest(self) -> int:
        return self.manifests[-1].number

    def standing(self) -> list[Version]:
        """Versions that no rollback took back."""
        reverted = {number for manifest in self.manifests for number in manifest.reverts}
        return [manifest for manifest in self.manifests if manifest.number not in reverted]


def names_of(wanted: Callable[[Card], bool]) -> st.SearchStrategy[str]:
    """The turns that are wanted; any turn if there is none."""

    def choose(machine: Lifecycle) -> st.SearchStrategy[str]:
        return st.sampled_from([n for n, c in machine.cards.items() if wanted(c)] or list(machine.cards))

    return st.runner().flatmap(choose)


names = names_of(lambda card: True)
claimed = names_of(lambda card: card.state is State.ANSWERED and card.holder is not None)
waiting = names_of(lambda card: card.state is State.OPEN)


class Lifecycle(RuleBasedStateMachine):
    def __init__(self, make: Callable[[Path], Database]) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.database = make(Path(self.home.name) / "database")
        self.store = self.database.open()
        self.cards: dict[str, Card] = {}
        self.folder = Folder([a_version(0, parent=None, origin=Origin.BASE)])
        self.store.commit_version(self.folder.manifests[0], now=0.0)
        self.now = 0.0
        self.batch: tuple[str, ...] = ()
        self.renamed: Version | None = None
        self.the_story_so_far()

    def the_story_so_far(self) -> None:
        """Two turns trained, one judged, one answered: from here on every rule has something to act on."""
        for _ in range(3):
            self.a_turn_is_served(None, answered=True)
        self.the_judge_judges_what_waits()
        self.the_learner_claims(2)
        self.the_learner_renames_a_manifest("commits")
        self.a_turn_is_served(None, answered=True)

    def teardown(self) -> None:
        self.store.close()
        self.home.cleanup()

    # The gateway

    @precondition(lambda self: len(self.cards) < TURNS)
    @rule(reason=reasons, answered=st.booleans())
    def a_turn_is_served(self, reason: Reason | None, answered: bool) -> None:
        name = f"t{len(self.cards)}"
        kinds = {Reason.UNKNOWN_BRANCH: Kind.UNKNOWN, Reason.SIDE_TURN: Kind.SIDE}
        kind = kinds.get(reason, Kind.MAIN)
        add(self.store, name, reason=reason, kind=kind, now=self.now)
        state = State.OPEN if reason is None else State.SKIPPED
        self.cards[name] = Card(state=state, reason=reason, born=self.now, kind=kind)
        if answered:
            self.it_is_answered(name, "no")

    @rule(name=waiting | names, words=st.sampled_from(["no", "yes"]))
    def it_is_answered(self, name: str, words: str) -> None:
        card = self.cards[name]
        message = Message(role="user", content=words)
        state = self.store.answer(name, (message,), answered_by=None, now=self.now)
        if card.said != words:
            card.said = words
            card.hears(self.now)
        assert state is card.state

    @rule(name=names, reward=st.sampled_from([-1, 1]))
    def feedback_comes(self, name: str, reward: int) -> None:
        card = self.cards[name]
        outcome = self.store.feedback(name, Feedback(reward=reward), now=self.now)
        card.hears(self.now)
        assert outcome == (card.state, card.state is State.ANSWERED)

    @rule(name=names, what=found_out)
    def something_is_found_out(self, name: str, what: Kind | Reason) -> None:
        card = self.cards[name]
        if isinstance(what, Kind):
            self.its_kind_is_found(name, what)
        elif what is Reason.SUPERSEDED:
            self.store.supersede(name, "retry", now=self.now)
            card.ends(what)
        else:
            self.store.skip([name], what, now=self.now)
            card.ends(what)

    def its_kind_is_found(self, name: str, kind: Kind) -> None:
        card = self.cards[name]
        self.store.set_kind(name, kind, now=self.now)
        card.kind = kind
        if kind is not Kind.MAIN:
            card.ends(Reason.SIDE_TURN if kind is Kind.SIDE else Reason.UNKNOWN_BRANCH)
        elif card.reason in REOPENED_ON_MAIN_LINE and card.changes:
            card.go(State.ANSWERED)

    @precondition(lambda self: self.some_are(State.OPEN))
    @rule(age=st.sampled_from([0.0, 6.0]))
    def nothing_answers(self, age: float) -> None:
        old = [c for c in self.cards.values() if c.state is State.OPEN and c.born < self.now - age]
        assert self.store.expire_open(self.now - age, now=self.now) == len(old)
        for card in old:
            card.go(State.SKIPPED, Reason.NO_NEXT_STATE)

    @rule(seconds=st.sampled_from([0.5, 5.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    def some_are(self, state: State) -> bool:
        return any(card.state is state for card in self.cards.values())

    # The judge

    def expected_claims(self, state: State, limit: int) -> list[str]:
        taken: list[str] = []
        for name, card in self.cards.items():
            free = card.holder is None or card.until <= self.now
            if card.state is not state or not free or card.retry_at > self.now or len(taken) == limit:
                continue
            if card.holder is not None:
                card.let_go()
            if card.state is state:
                taken.append(name)
        return taken

    def take(self, expected: list[str], owner: str) -> None:
        for name in expected:
            card = self.cards[name]
            card.holder, card.until, card.seen = owner, self.now + LEASE, card.changes

    @rule(owner=owners, limit=st.integers(1, 3))
    def the_judge_claims(self, owner: str, limit: int) -> None:
        expected = self.expected_claims(State.ANSWERED, limit)
        claimed = self.store.claim("judge", owner=owner, limit=limit, lease_s=LEASE, now=self.now)
        assert [record.turn.id for record in claimed] == expected
        self.take(expected, owner)

    @rule(name=claimed, owner=st.none() | owners, reason=st.none() | verdict_reasons)
    def the_judge_commits(self, name: str, owner: str | None, reason: Reason | None) -> None:
        card = self.cards[name]
        owner = owner or card.holder or "one"
        trains = reason is None
        stored = self.store.judged(
            name, HINTED, rl=trains, opd=trains, reason=reason, owner=owner, now=self.now
        )
        if card.state is not State.ANSWERED or card.holder != owner:
            assert stored == (card.state is not State.ANSWERED and card.judged_at == card.changes)
        elif card.changes != card.seen:
            card.let_go()
            assert not stored
        else:
            assert stored
            card.judged_at = card.changes
            card.trains = trains
            card.go(State.JUDGED if trains else State.SKIPPED, reason)

    @rule()
    def the_judge_judges_what_waits(self) -> None:
        self.the_judge_claims("one", TURNS)
        for name, card in self.cards.items():
            if card.state is State.ANSWERED and card.holder == "one":
                self.the_judge_commits(name, "one", None)

    @rule(name=claimed, owner=owners, wait=st.sampled_from([0.0, 7.0]))
    def the_judge_gives_back(self, name: str, owner: str, wait: float) -> None:
        card = self.cards[name]
        self.store.release([name], owner=owner, now=self.now, retry_in_s=wait, error="down")
        if card.holder == owner:
            card.retry_at = self.now + wait
            card.let_go()

    # The learner: one at a time, as it renews its lease before the rename

    @precondition(lambda self: not self.batch and not self.renamed and self.some_are(State.JUDGED))
    @rule(limit=st.integers(1, 4))
    def the_learner_claims(self, limit: int) -> None:
        expected = self.expected_claims(State.JUDGED, limit)
        claimed = self.store.claim("learn", owner="learner", limit=limit, lease_s=LEASE, now=self.now)
        assert [record.turn.id for record in claimed] == expected
        self.take(expected, "learner")
        self.batch = tuple(expected)

    @precondition(lambda self: not self.batch and not self.renamed and self.some_are(State.ANSWERED))
    @rule(then=st.sampled_from(["commits", "dies", "waits"]))
    def what_waits_is_judged_and_trained(self, then: str) -> None:
        self.the_judge_judges_what_waits()
        self.the_learner_claims(TURNS)
        self.the_learner_renames_a_manifest(then)

    @precondition(lambda self: self.batch)
    @rule(then=st.sampled_from(["commits", "dies", "waits"]))
    def the_learner_renames_a_manifest(self, then: str) -> None:
        held = tuple(name for name in self.batch if self.cards[name].holder == "learner")
        assert set(self.store.extend(self.batch, owner="learner", lease_s=LEASE, now=self.now)) == set(held)
        for name in held:
            self.cards[name].until = self.now + LEASE
        self.batch = ()
        if not held:
            return
        self.renamed = a_version(self.folder.newest + 1, held)
        self.folder.manifests.append(self.renamed)
        if then == "commits":
            self.the_learner_commits()
        elif then == "dies":
            self.the_learner_starts_again()

    @precondition(lambda self: self.renamed)
    @rule()
    def the_learner_commits(self) -> None:
        assert self.renamed is not None
        for _ in range(2):  # again: nothing happens
            self.store.commit_version(self.renamed, now=self.now)
        for name in self.renamed.turns:
            self.cards[name].go(State.TRAINED)
        self.renamed = None

    @rule()
    def the_learner_starts_again(self) -> None:
        self.batch, self.renamed = (), None
        self.store.reconcile(self.folder.manifests, now=self.now)
        trained = {name for manifest in self.folder.standing() for name in manifest.turns}
        for name, card in self.cards.items():
            if name in trained and card.state is not State.TRAINED:
                card.go(State.TRAINED)
            if card.state is State.JUDGED and card.holder is not None:
                card.let_go()

    @precondition(lambda self: len(self.folder.manifests) > 1)
    @rule()
    def the_newest_checkpoint_is_lost(self) -> None:
        lost = self.folder.manifests.pop()
        for name in lost.turns:
            card = self.cards[name]
            if card.state is State.TRAINED:
                card.go(State.JUDGED if card.judged_at == card.changes else State.ANSWERED)
        self.the_learner_starts_again()

    @precondition(lambda self: not self.renamed and len(self.folder.standing()) > 1)
    @rule()
    def the_newest_update_is_rolled_back(self) -> None:
        target = self.folder.standing()[-1]
        number = self.folder.newest + 1
        rollback = a_version(number, origin=Origin.ROLLBACK, restores=0, reverts=(target.number,))
        self.folder.manifests.append(rollback)
        self.store.commit_version(rollback, now=self.now)
        for name in target.turns:
            if self.cards[name].state is State.TRAINED:
                self.cards[name].go(State.SKIPPED, Reason.REVERTED)

    # The operator

    @precondition(lambda self: self.some_are(State.SKIPPED))
    @rule()
    def failed_turns_are_put_back(self) -> None:
        failed = [
            card
            for card in self.cards.values()
            if card.reason is not None and card.reason.kind is ReasonClass.FAILED and card.changes
        ]
        assert self.store.requeue(now=self.now) == len(failed)
        for card in failed:
            fresh = card.judged_at == card.changes and card.trains
            card.go(State.JUDGED if fresh else State.ANSWERED)

    @rule(killed=st.booleans())
    def the_store_is_opened_again(self, killed: bool) -> None:
        if killed:
            self.database.crash()
        self.store.close()
        self.store = self.database.open()
        if killed:
            self.the_learner_starts_again()

    # Invariants

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        records = list(self.store.turns())
        assert {record.turn.id for record in records} == set(self.cards)
        for record in records:
            card = self.cards[record.turn.id]
            assert (record.state, record.reason) == (card.state, card.reason), record.turn.id
            assert (record.owner, record.revision) == (card.holder, card.changes)
            assert record.turn.kind is card.kind
            said = record.next_state.messages if record.next_state else ()
            assert [message.content for message in said] == ([] if card.said is None else [card.said])

    @invariant()
    def nothing_is_lost_and_all_is_counted(self) -> None:
        assert self.store.counts().states == Counter(card.state for card in self.cards.values())

    @invariant()
    def nothing_trains_twice(self) -> None:
        trained = [name for manifest in self.folder.standing() for name in manifest.turns]
        assert len(trained) == len(set(trained))
        waiting = set() if self.renamed is None else set(self.renamed.turns)
        found = {name for name, card in self.cards.items() if card.state is State.TRAINED}
        assert found == set(trained) - waiting


QUICK = settings(
    max_examples=5,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LIVES = {"sqlite": 1000, "postgresql": 100}
"""In the slow form; each statement is a way to the server and back."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_store_agrees_with_a_model_of_it(kind: str) -> None:
    run_state_machine_as_test(lambda: Lifecycle(DATABASES[kind]), settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_the_store_agrees_with_a_model_of_it_in_many_lives(kind: str) -> None:
    many = settings(QUICK, max_examples=LIVES[kind])
    run_state_machine_as_test(lambda: Lifecycle(DATABASES[kind]), settings=many)
