"""The store's port: what every database behind Afterwit must do. One protocol for each kind of use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from afterwit.adapters import SHARED
from afterwit.binding.stored import Branch, Candidate, Recent, Shape
from afterwit.judging.checks import Judged
from afterwit.lifecycle import Reason, State
from afterwit.message import Message
from afterwit.promotion.episodes import Episode
from afterwit.promotion.events import Event
from afterwit.promotion.items import Item
from afterwit.store.lines import EndedTurn, Outcome, SessionLine, SourceLine, TurnLine
from afterwit.store.records import (
    Committed,
    Counts,
    EndedEpisode,
    Excluded,
    FeedbackOutcome,
    Filter,
    ForgetOrder,
    Key,
    LearnedTurn,
    Pause,
    Pruned,
    Reconciled,
    Record,
    ReviewOutcome,
    Status,
    VersionRecord,
)
from afterwit.teaching.sources import Votes
from afterwit.turn import Kind, RecordedTurn, Waiting
from afterwit.verdict import Feedback, Flag, Verdict
from afterwit.version import Version


class Browsing(Protocol):
    """Read-only. A page goes on behind the last line of the one before: `before` is its `seq` or number."""

    def turn_lines(
        self, where: Filter | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[TurnLine]:
        """Turns whose content is there, the newest first."""
        ...

    def session_lines(self, *, before: int | None = None, limit: int = 30) -> list[SessionLine]:
        """Sessions by their newest main turn, the newest first."""
        ...

    def outcomes(self, *, limit: int, newest: bool = True) -> list[Outcome]:
        """The newest, or the first, judged turns, in the order of arrival."""
        ...

    def judged_turns(self, *, limit: int) -> list[Judged]:
        """The newest judged turns with the judge's votes, in the order of arrival."""
        ...

    def source_lines(self, *, newest: int) -> list[SourceLine]:
        """Who the newest turns came from, those with most turns first."""
        ...

    def ended_turns(self, *, after: tuple[float, int], until: float, limit: int) -> list[EndedTurn]:
        """Turns that were trained or skipped and stayed so, by when that was: behind `after`, the time
        and the `seq` of the last one, up to `until`. Imported turns are left out."""
        ...

    def newest_versions(self, *, before: int | None = None, limit: int = 50) -> list[VersionRecord]:
        """The newest versions that are not lost, the newest first."""
        ...


class Control(Protocol):
    """Orders hold until they are taken back, across restarts and for every process over the store."""

    def pause(self, words: str, *, now: float, adapter: str | None = None) -> Pause:
        """No learner claims a turn from here on; with an `adapter`, none that it would learn from. `words`:
        why; a pause that holds already gets the new ones, and keeps its time."""
        ...

    def resume(self) -> Pause | None:
        """Learning goes on, of every adapter. Returns a pause that ended; None: there was none."""
        ...

    def paused_adapters(self) -> Mapping[str, Pause]:
        """The pauses that hold for one adapter each."""
        ...

    def paused(self) -> Pause | None:
        """The pause that holds; None: learning may go on."""
        ...

    def review(self, turns: Sequence[str], *, accept: bool, now: float) -> dict[str, ReviewOutcome]:
        """A person's word on the verdicts of these turns; what became of each. Raises TurnNotFound.

        An accepted turn may train, a refused one ends. A turn that was refused may be accepted later. What
        trains at this moment, or has trained, stays as it is.
        """
        ...

    def exclude(self, session: str, *, now: float) -> Excluded:
        """End the session's turns and all that come: they never train. What has trained stays trained."""
        ...

    def include(self, session: str) -> bool:
        """Turns that come may train again; what ended stays ended. Whether the session was excluded."""
        ...

    def excluded(self) -> frozenset[str]:
        """The sessions that never train."""
        ...

    def set_note(self, name: str, text: str) -> None:
        """Keep what a stage says of itself; the newest text of a name counts."""
        ...

    def note(self, name: str) -> str | None:
        """The newest text of this name."""
        ...


class Copying(Protocol):
    """Others go on reading and writing meanwhile. What they commit is in the copy whole or not at all."""

    def copy_to(self, path: Path) -> None:
        """For backups: write all that is stored into the new file `path`, which is a SQLite store.

        Raises StoreUnavailable if the disk has no room for it.
        """
        ...

    def copy_into(self, other: Copying) -> int:
        """Write all that is stored into another store, which is empty and may be of another kind; returns the
        number of turns.

        All of it is stored there, or nothing. Raises StoreError if the other holds anything already,
        StoreMismatch if it belongs to another model.
        """
        ...


class Forgetting(Protocol):
    """An order holds until it is carried out, across restarts. `commit_version` of a version that forgets
    sessions carries theirs out."""

    def order_forgetting(self, session: str, *, replay: bool, now: float) -> None:
        """Have the learner forget a session. Ordered again, the newest order counts, and an error is over."""
        ...

    def forget_orders(self) -> list[ForgetOrder]:
        """The orders that are not carried out yet, oldest first."""
        ...

    def forgetting_failed(self, session: str, error: str) -> None:
        """Why an order cannot be carried out; it is not tried again until it is ordered again."""
        ...

    def cancel_forgetting(self, session: str) -> None:
        """Take an order back, if there is one."""
        ...

    def sessions_of(self, adapter: str) -> tuple[str, ...]:
        """The sessions in which an adapter answered, those that were forgotten left out."""
        ...

    def turn_ids(self, session: str) -> tuple[str, ...]:
        """The ids of all turns of a session, those whose content is gone among them."""
        ...

    def forget(self, session: str, *, now: float) -> int:
        """Delete what was said in a session and about it: content, next states, feedback, verdicts, votes,
        effects, episodes, and what its turns gave to the suite. Its turns end as `forgotten`.

        Returns how many had content. What was deleted cannot be read back from the store's files, as after
        `prune`.
        """
        ...


class Leases(Protocol):
    """An `owner` is one worker. A turn it does not commit, extend or release in time is free for others."""

    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        """While the body runs, `heard` is called in another thread when a turn begins to wait for the judge,
        whichever process moved it. It may be called without reason; a store that cannot tell never calls it:
        ask from time to time all the same."""
        ...

    def claim(
        self,
        stage: Stage,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        now: float,
        only: Sequence[int] | None = None,
    ) -> list[Record]:
        """Up to `limit` turns that wait for the stage, oldest first, held by `owner` for `lease_s` seconds.

        No turn is ever held by two owners. With `only`, a list of `seq`, other turns are not considered.
        """
        ...

    def extend(self, turns: Sequence[str], *, owner: str, lease_s: float, now: float) -> tuple[str, ...]:
        """Hold claimed turns for `lease_s` more seconds; returns the ids that the owner still holds."""
        ...

    def release(
        self,
        turns: Sequence[str],
        *,
        owner: str,
        now: float,
        retry_in_s: float = 0.0,
        error: str | None = None,
    ) -> None:
        """Give claimed turns back, free after `retry_in_s` seconds. An `error` counts as a failed attempt."""
        ...

    def judged(
        self,
        turn: str,
        verdict: Verdict,
        *,
        rl: bool,
        opd: bool,
        reason: Reason | None,
        owner: str,
        now: float,
        flags: Sequence[Flag] = (),
        signature: str | None = None,
        previous: str | None = None,
    ) -> bool:
        """Store a verdict and move the turn to JUDGED, or to SKIPPED if there is a `reason`; True if so.

        `flags`: what is doubtful about it. `signature`: the kind of call that it judges; `previous`: that
        of the call before, empty if there was none. A person's review of an earlier verdict of the turn is
        forgotten.

        False if it came too late: another worker holds the turn, or its next state changed meanwhile and it
        waits to be judged again. Repeating a commit that succeeded changes nothing. Raises TurnNotFound, and
        IllegalMove for an imported turn without a `reason`: it cannot train.
        """
        ...

    def skip(
        self,
        turns: Sequence[str],
        reason: Reason,
        *,
        now: float,
        owner: str | None = None,
        error: str | None = None,
    ) -> int:
        """End turns without training, and return how many; with an `owner` only those it still holds.

        A turn that already trained or ended stays as it is. Raises TurnNotFound.
        """
        ...


class LearnerQueue(Protocol):
    """What waits for the learner. Read-only."""

    def in_update(self, *, now: float) -> int:
        """How many turns a learner holds."""
        ...

    def waiting(self, *, now: float) -> list[Waiting]:
        """The judged turns that a learner could claim now, oldest first; those that wait for a person too.

        A session has ended if no request follows its newest turn, that turn waits for none (the client said
        so, nothing answered for a day, or feedback took the reply's place), and no turn of it waits for the
        judge.
        """
        ...


class Lineage(Protocol):
    """The manifests in the checkpoint folder are the truth; the store follows them.

    Committing is idempotent: after a crash between a manifest's rename and its commit, it is repeated.
    """

    def leading(self) -> AbstractContextManager[None]:
        """While the body runs, no other process learns over the store, whichever home it has. Raises
        AlreadyRunning if one does."""
        ...

    def commit_version(self, version: Version, *, now: float) -> Committed:
        """Take over a manifest: its new turns become TRAINED, and those of versions that it brings back; the
        turns of versions it reverts end. What a later one, which is known already, reverts stays so.

        Raises StoreError if the number is known with other turns.
        """
        ...

    def reconcile(self, manifests: Sequence[Version], *, now: float, error: str | None = None) -> Reconciled:
        """Make the store agree with every manifest of the checkpoint folder. Called when a learner starts.

        Manifests it does not know are committed. A version that is neither among them nor an ancestor of one,
        or that names other turns than its manifest, is lost: its turns go back to JUDGED (to ANSWERED if
        something was said since), and turns that a lost rollback reverted are TRAINED again. Leases of an
        earlier learner are freed; an `error` says what it died of, and counts as a failed attempt.
        """
        ...

    def published(self, number: int, *, now: float) -> None:
        """The engine serves this version. Raises StoreError for a version that is not committed."""
        ...

    def latest_published(self, adapter: str = SHARED) -> int:
        """The adapter's newest version that was ever served; 0, the base, if none was."""
        ...

    def learned(
        self, *, version: int | None = None, turns: Collection[str] | None = None
    ) -> list[LearnedTurn]:
        """What was trained on, by version: of one version, or of these turns in any version. Turns whose
        content is gone are among them."""
        ...

    def versions(self, adapter: str | None = None) -> list[VersionRecord]:
        """All versions that are not lost, oldest first; the base and an adapter's alone, if it is named."""
        ...


class Statuses(Protocol):
    """The newest status of each stage, and of each machine if the store is shared.

    An alarm stays until the stage reports that it works again, or another machine reports of the stage and
    this one has not for a week.
    """

    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None: ...

    def statuses(self) -> list[Status]:
        """By the stage's name, then the machine's."""
        ...


class Keys(Protocol):
    """API keys, each by its hash. A revoked key stays in the list until its name is given to a new one."""

    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        """Raises StoreError if the hash is taken, or the name by a key that is not revoked."""
        ...

    def keys(self) -> list[Key]:
        """All of them, revoked ones included, oldest first."""
        ...

    def revoke_key(self, name: str, *, now: float) -> None:
        """Raises StoreError for an unknown name. A second revocation keeps the time of the first."""
        ...


class Promotion(Protocol):
    """Episodes, the suite of approved turns, and the events of promotion.

    Each belongs to the adapter that served the turns. Where an `adapter` may be named, None means: of all.
    """

    def line(self, turn: str, *, limit: int = 64) -> list[Record]:
        """A turn behind those that lead to it in its session, oldest first: at most `limit`, whose content is
        there. Raises TurnNotFound."""
        ...

    def end_episode(self, ended: Episode, items: Sequence[Item], *, steps: Sequence[str], now: float) -> None:
        """Store how an episode ended, and the items it approved; an episode of the same turn is replaced.

        `steps` are its turns: an episode that seemed to end with an earlier one of them is forgotten.
        """
        ...

    def episodes(self, adapter: str | None = None, *, after: int | None = None) -> list[EndedEpisode]:
        """The episodes since the last alarm, in the order in which they ended.

        `after`: only of versions that were learned since this one and since that alarm: none that it was
        learned from, no rollback to one of those, and none that the alarm takes back.
        """
        ...

    def all_episodes(self, *, limit: int | None = None, newest: bool = True) -> list[EndedEpisode]:
        """All episodes, or `limit` of them, the newest or the first, in the order in which they ended."""
        ...

    def ended_badly(self, *, until: int, newest: int = 24, adapter: str | None = None) -> tuple[int, int]:
        """How many of how many episodes ended badly, of the newest that version `until` served, and those
        that it was learned from.

        A rollback to one of these versions counts as it; what was taken back before `until` was learned does
        not count.
        """
        ...

    def unended(self, *, before: float, limit: int = 64) -> list[Record]:
        """Main turns from before that time whose tool call nothing followed and that closed no episode.

        Of the choices of one response the first, if nothing followed any of them.
        """
        ...

    def ended_choices(self, turn: str) -> list[str]:
        """The other choices of the turn's response that closed an episode."""
        ...

    def suite(self, adapter: str | None = None) -> list[Item]:
        """The approved turns that have not been retired, newest first."""
        ...

    def retire(self, turns: Sequence[str]) -> int:
        """Take items out of the suite whose stratum was approved twice since; returns how many."""
        ...

    def withdraw(self, turns: Sequence[str]) -> int:
        """Take items out of the suite: who approved them asks for something else now. Returns how many."""
        ...

    def decided(self, event: Event) -> None:
        """Keep an event."""
        ...

    def events(self, adapter: str | None = None) -> list[Event]:
        """All events, oldest first."""
        ...


class Reading(Protocol):
    """Read-only."""

    def turn(self, turn: str) -> Record:
        """Raises TurnNotFound if there is no such turn, or its content was pruned."""
        ...

    def scopes(self, turns: Collection[str]) -> dict[str, str]:
        """For each of these turns, its scope; those without content are left out.

        Takes as long for a turn that is there as for one that is not: its content is not read.
        """
        ...

    def messages_of(self, turns: Collection[str]) -> dict[str, Message]:
        """For each of these turns, its response; those without content are left out."""
        ...

    def resolve(self, prefix: str) -> str:
        """The id of the only turn whose id begins with `prefix`; a whole id is its own.

        Raises TurnNotFound if there is none, TurnAmbiguous with the matches' names if there are several.
        """
        ...

    def turns(
        self,
        where: Filter | None = None,
        *,
        after: int = 0,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        """Turns in the order of arrival, or the newest first; with `after`, a record's `seq`, from there on.

        The latest turn is the first one with `newest_first`.
        """
        ...

    def counts(self) -> Counts:
        """Turns by state, and ended turns by reason."""
        ...

    def group_rewards(self, turns: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """For each of these turns, the rewards of all judged turns of its scope with the same prompt ids.

        In the order of arrival, its own included, whatever became of the others.
        """
        ...

    def trained_with_hints(
        self, *, limit: int, min_version: int, seed: int, adapter: str = SHARED
    ) -> list[Record]:
        """Trained turns of an adapter that have hints, chosen at random by `seed`, for replay.

        Only turns whose oldest token was sampled by `min_version` or later.
        """
        ...

    def to_pass_on(self, *, limit: int) -> list[Record]:
        """Turns that trained an adapter of somebody's own and no version of the shared one, oldest first."""
        ...


class Recording(Protocol):
    """New turns, and what is said of earlier ones."""

    def binding(self, scope: str) -> AbstractContextManager[None]:
        """While the body runs, no other gateway binds requests of this scope over the store: what was looked
        up holds until what follows from it is stored."""
        ...

    def add_turn(
        self,
        turn: RecordedTurn,
        *,
        prompt_hash: bytes,
        full_hash: bytes,
        depth: int,
        full_depth: int,
        delivered: bool,
        reason: Reason | None,
        now: float,
        shape: Shape | None = None,
        client_session: bytes | None = None,
        supersedes: str | None = None,
    ) -> None:
        """Store a turn as OPEN, or as SKIPPED if there is a `reason` already.

        `client_session` is the hash of the client's own session id. `supersedes` is the earlier turn that
        this one retries; it is recorded with the turn or not at all. Raises StoreError if the id is taken.
        """
        ...

    def delivered(self, turns: Iterable[str]) -> None:
        """The clients got the whole answers."""
        ...

    def answer(self, turn: str, messages: Sequence[Message], *, answered_by: str | None, now: float) -> State:
        """Record what followed a turn, and return the state it is in now.

        A turn that can still learn from it is ANSWERED again. The same messages a second time change nothing.
        A turn that was trained, or that the learner holds, keeps its state.
        """
        ...

    def feedback(self, turn: str, feedback: Feedback, *, now: float) -> FeedbackOutcome:
        """Record explicit feedback; the newest counts. Raises TurnNotFound."""
        ...

    def supersede(self, turn: str, by: str, *, now: float) -> None:
        """The turn `by` is a retry of this one, which ends unless it already trained or ended."""
        ...

    def set_kind(self, turn: str, kind: Kind, *, session: str | None = None, now: float) -> State:
        """Correct a turn's kind, and its session if one is given, and return its state.

        Off the main line it ends; on it, it may train.
        """
        ...

    def end_session(self, session: str, *, now: float) -> int:
        """Skip the session's OPEN turns, and return their number. A late reply or feedback reopens them."""
        ...


class ParentLookup(Protocol):
    """What binding asks. Read-only. Side turns are never counted as children."""

    def candidates(
        self,
        scope: str,
        hashes: Sequence[bytes],
        turn_ids: Sequence[str],
        *,
        client_session: bytes | None = None,
        side_limit: int = 16,
        equal_limit: int = 32,
    ) -> list[Candidate]:
        """The turns of a scope that a request may continue, repeat or edit, in no order.

        `hashes` are the request's prefix hashes, shallow to deep; turns that the deepest possible parent
        makes irrelevant may be left out. Of turns with an equal hash only the newest `equal_limit` come: a
        prompt that is repeated for ever must not make each request slower. `turn_ids` are the turns that its
        tool-call ids name. The newest `side_limit` side turns of long replies (from `LONG_REPLY` bytes, as
        they are stored) come with them: a compacted conversation may quote one. If the client names its
        sessions, the newest main turn of `client_session` comes too, and none of another session of its.
        """
        ...

    def replies(self, scope: str, sessions: Collection[str], *, limit: int = 32) -> list[Candidate]:
        """The newest turns of these sessions, side turns left out, with their replies."""
        ...

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        """The conversations of a scope that went on last, with what was said last.

        Those with a branch that may or may not be the main line come a second time, as of that branch.
        """
        ...

    def branch(self, turn: str) -> Branch | None:
        """A turn among its siblings; None if it is not in the store."""
        ...

    def branches(self, parent: str, *, limit: int = 32) -> list[Branch]:
        """The newest `limit` of a turn's children, oldest first: side, retried and abandoned turns left out.

        An answer that is asked for again for ever must not make each request slower.
        """
        ...

    def full_depth(self, turn: str) -> int:
        """Number of segments in a turn's prompt and response. Raises TurnNotFound."""
        ...


class Retention(Protocol):
    """Turns that wait are never removed. A trained turn leaves behind what its version's count needs."""

    def expire_open(self, older_than: float, *, now: float) -> int:
        """Skip OPEN turns created before `older_than`, and return how many. A late reply reopens them."""
        ...

    def prune(
        self, *, now: float, max_age_s: float | None, max_bytes: int | None, limit: int = 2048
    ) -> Pruned:
        """Remove ended turns older than `max_age_s`, and what the suite holds of turns that old; then the
        oldest turns until the rest is within `max_bytes`.

        None: no such limit. At most `limit` turns a call: call again for more. What was removed cannot be
        read back from the store's files, unless another process still reads an older state of them.
        """
        ...

    def size(self) -> int:
        """Bytes in use. Room that pruning freed and new turns will take does not count."""
        ...

    def requeue(self, turns: Sequence[str] | None = None, *, reason: Reason | None = None, now: float) -> int:
        """Put skipped turns back where their step failed, and return how many.

        Of `turns` (None: of all) those that failed, or only those with `reason`. A turn that was rolled back
        returns only if it is named itself.
        """
        ...


class Sources(Protocol):
    """A source is a key, whatever its clients call themselves (`source_of`). Read-only."""

    def votes_on(
        self, signature: str, *, after: str | None = None, adapter: str = SHARED
    ) -> Mapping[str, Votes]:
        """What each source that teaches an adapter said of calls of this kind, in verdicts that no person
        doubted; if `after` is given, of those after a call of that kind, or, if it is empty, after none.

        Those that contradict others count once a person accepted them.
        """
        ...

    def trained_since(self, at: float) -> Mapping[str, int]:
        """How many turns of each source versions made since then trained on as new ones."""
        ...

    def contradictions(self, source: str) -> int:
        """How many rejections of a source contradict what others approved, and no person accepted."""
        ...


class Store(
    Recording,
    ParentLookup,
    Leases,
    LearnerQueue,
    Lineage,
    Promotion,
    Control,
    Sources,
    Forgetting,
    Reading,
    Browsing,
    Retention,
    Copying,
    Statuses,
    Keys,
    Protocol,
):
    """The whole store. Each method is one transaction: all of it is stored, or nothing.

    What a method wrote survives a killed process as soon as it returns; whether it survives a power loss is
    the database's own setting. A store is used by one thread at a time; other threads and processes open
    their own.

    Raises StoreUnavailable if the database cannot take or give anything now, and StoreError if it refuses
    what was asked. In both cases nothing of the call is stored.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """Several calls as one: all of them are stored, or none. An inner transaction joins the outer one."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """A transaction of several callers' calls. One that would wait for another process, or must be alone,
        raises StoreConflict instead: then nothing of any call is stored, and each can be made by itself."""
        ...

    def close(self) -> None:
        """Free what the store holds. Nothing may be called afterwards."""
        ...


Stage = Literal["judge", "learn"]


WAITS_IN: dict[Stage, State] = {"judge": State.ANSWERED, "learn": State.JUDGED}
"""The state in which turns wait for each stage."""
