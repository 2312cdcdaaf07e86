"""Turns with everything that happened to them, as the stages read them."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from afterwit.errors import StoreError, TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.store.database import ALL, LAST_CHARACTER, Row, marks
from afterwit.store.moves import INCLUDED, Part
from afterwit.store.rows import read, read_turn, unpack_message, whole_values
from afterwit.turn import SHARED, Kind, Message, RecordedTurn, Turn, source_of
from afterwit.verdict import Feedback, Flag, NextState, Verdict, Vote
from afterwit.version import Origin
from afterwit.vetting.doubts import Votes

ACCEPTED, REFUSED = "yes", "no"
"""A person's review of a verdict, as it is stored."""

RECORD = (
    "SELECT t.*, c.*, n.messages, v.reward, v.source, v.hints, v.rl, v.opd, v.flags, v.review FROM turns t"
    " JOIN contents c USING (seq) LEFT JOIN next_states n USING (seq) LEFT JOIN verdicts v USING (seq)"
)

PAGE = 64
"""Turns read at once when listing: about a megabyte."""

NAMED = 8
"""Turns that an ambiguous prefix's error names."""

VOTES = f"""
    SELECT t.scope, count(*) FILTER (WHERE v.reward > 0) AS approved,
        count(*) FILTER (WHERE v.reward < 0) AS rejected
    FROM verdicts v JOIN turns t USING (seq)
    WHERE {{kind}} AND t.adapter = ? {{only}} AND coalesce(v.review, '') <> '{REFUSED}'
    AND (v.flags IS NULL OR v.flags NOT LIKE '%contradict%' OR v.review = '{ACCEPTED}')
    AND t.kind <> 'practice' AND t.{INCLUDED} GROUP BY t.scope
"""
"""`contradict` is in the flags of both a person's word and a failed call that contradict others."""

SAME_PROMPT = """
    turns own JOIN contents oc USING (seq)
    JOIN turns t ON t.prompt_hash = own.prompt_hash AND t.scope = own.scope
    JOIN contents c ON c.seq = t.seq AND c.prompt_digest = oc.prompt_digest
    JOIN verdicts v ON v.seq = t.seq
"""
"""Each turn `own` with the judged turns of its scope that have the same prompt ids, itself included."""

TEXTS = 1_000
"""Turns, the newest ones, whose votes on text are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A turn, with everything that happened to it since."""

    seq: int
    """The order of arrival. A page of turns continues after it."""
    turn: RecordedTurn
    state: State
    reason: Reason | None
    """Why it was skipped; None in every other state."""
    delivered: bool
    """Whether the client got the whole response."""
    superseded_by: str | None
    next_state: NextState | None
    revision: int
    """Counts the changes of the next state."""
    verdict: Verdict | None
    rl: bool
    opd: bool
    """The terms of the loss that the verdict gives the turn."""
    trained_in: tuple[int, ...]
    """The versions it was trained in as a new turn, oldest first."""
    replayed_in: tuple[int, ...]
    owner: str | None
    attempts: int
    """Failed attempts at the next step."""
    retry_at: float
    error: str | None
    """The message of the last failed attempt."""
    flags: tuple[Flag, ...] = ()
    accepted: bool | None = None
    """A person's review of the verdict; None: not reviewed."""

    @property
    def sampled_turn(self) -> Turn:
        """The turn, which was sampled here. Raises ValueError for an imported one."""
        if not isinstance(self.turn, Turn):
            raise ValueError(f"turn {self.turn.id} was not sampled here")
        return self.turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A choice of turns; None: any."""

    session: str | None = None
    state: State | None = None
    reason: Reason | None = None
    kind: Kind | None = None
    practised: bool | None = None
    """Whether they are answers that practised a lesson."""
    scope: str | None = None
    version: int | None = None
    """Only turns that this version trained on as new."""


class Reading(Part):
    """Queries of all stages and commands."""

    def turn(self, turn: str) -> Record:
        """Raises TurnNotFound for an unknown turn, or one whose content was pruned."""
        seq = self._db.value("SELECT seq FROM turns WHERE id = ?", (turn,))
        if seq is None:
            raise TurnNotFound(f"there is no turn {turn}")
        if not (records := self._records((seq,))):
            raise TurnNotFound(f"the content of turn {turn} was removed to keep the store within its limits")
        return records[0]

    def find(self, turn: str) -> Record | None:
        """As `turn`; None in place of TurnNotFound."""
        with suppress(TurnNotFound):
            return self.turn(turn)
        return None

    def scopes(self, turns: Collection[str]) -> dict[str, str]:
        """The scope of each of these turns; those without content are left out.

        Takes as long for a stored turn as for an unknown one: no content is read.
        """
        sql = f"SELECT id, scope FROM turns JOIN contents USING (seq) WHERE id IN ({marks(len(turns))})"
        return {row["id"]: row["scope"] for row in self._db.rows(sql, tuple(turns))}

    def messages_of(self, turns: Collection[str]) -> dict[str, Message]:
        """The response of each of these turns; those without content are left out."""
        sql = f"SELECT id, message FROM turns JOIN contents USING (seq) WHERE id IN ({marks(len(turns))})"
        return {row["id"]: unpack_message(row["message"]) for row in self._db.rows(sql, tuple(turns))}

    def lessons_shown(self, turn: str) -> str:
        """The lessons in a turn's prompt; empty also if its content was removed."""
        seqs = [row["seq"] for row in self._db.rows("SELECT seq FROM turns WHERE id = ?", (turn,))]
        found = (orjson.loads(whole["conversation"]) for whole in whole_values(self._db, seqs).values())
        return next((str(conversation.get("lessons", "")) for conversation in found), "")

    def resolve(self, prefix: str) -> str:
        """The id of the only turn whose id begins with `prefix`; a whole id is its own.

        Raises TurnNotFound if there is none, StoreError with the matches' ids if there are several.
        """
        sql = "SELECT id FROM turns WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        rows = self._db.rows(sql, (prefix, prefix + LAST_CHARACTER, NAMED + 1))
        ids: list[str] = [row["id"] for row in rows]
        if not ids:
            raise TurnNotFound(f"there is no turn {prefix}")
        if len(ids) > 1 and ids[0] != prefix:
            more = ", ..." if len(ids) > NAMED else ""
            raise StoreError(f"several turns begin with {prefix}: {', '.join(ids[:NAMED])}{more}")
        return ids[0]

    def turns(
        self,
        where: Filter | None = None,
        *,
        after: int = 0,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        """Turns in the order of arrival, or the newest first; with `after`, those after this `seq`."""
        clauses, values = conditions(where or Filter())
        if not newest_first:
            clauses, values = f"{clauses} AND t.seq <= ?", [*values, self._db.settled()]
        order, past = ("DESC", "<") if newest_first else ("ASC", ">")
        position = after if after or not newest_first else ALL
        left = ALL if limit is None else limit
        while left > 0:
            sql = f"SELECT t.seq FROM turns t JOIN contents USING (seq) WHERE t.seq {past} ?{clauses}"
            order_by = f"ORDER BY t.seq {order} LIMIT {min(PAGE, left)}"
            seqs = [row["seq"] for row in self._db.rows(f"{sql} {order_by}", (position, *values))]
            if not seqs:
                return
            records = self._records(seqs)
            yield from reversed(records) if newest_first else records
            if seqs[-1] == position or (seqs[-1] < position) != newest_first:
                raise StoreError(
                    f"{self._db.place} is damaged: turns stand out of order. Restore it from a copy."
                )
            position, left = seqs[-1], left - len(seqs)

    def _gone(self) -> set[int]:
        """The updates that rollbacks took out of the newest weights, and other versions that hold them."""
        gone: set[int] = set()
        others = self._db.rows(
            "SELECT number, coalesce(restores, parent) AS source, reverts, returns FROM versions"
            " WHERE origin IN (?, ?) ORDER BY number",
            (Origin.ROLLBACK, Origin.REPLAY),
        )
        for row in others:
            gone.update(orjson.loads(row["reverts"]))
            gone.difference_update(orjson.loads(row["returns"]))
        for row in others:
            if row["source"] in gone:
                gone.add(row["number"])
        return gone

    def _records(self, seqs: Sequence[int]) -> list[Record]:
        """Whole records in the order of arrival; turns whose content was pruned are left out.

        Raises StoreError with the id of a turn whose rows are damaged.
        """
        rows = self._db.rows(f"{RECORD} WHERE t.seq IN ({marks(len(seqs))}) ORDER BY t.seq", seqs)
        votes = self._grouped(f"* FROM votes WHERE seq IN ({marks(len(seqs))}) ORDER BY seq, place", seqs)
        feedback = self._grouped(f"* FROM feedback WHERE seq IN ({marks(len(seqs))}) ORDER BY number", seqs)
        trained = self._trained([row["id"] for row in rows])
        whole = whole_values(self._db, [row["seq"] for row in rows])
        found = []
        for row in rows:
            seq = row["seq"]
            if seq not in whole:
                continue
            try:
                found.append(_record(row, whole[seq], votes[seq], feedback[seq], trained[row["id"]]))
            except (ValueError, LookupError, TypeError, struct.error) as error:
                raise StoreError(
                    f"turn {row['id']} is damaged in {self._db.place}: restore the store from a copy"
                ) from error
        return found

    def _trained(self, turns: Sequence[str]) -> Mapping[str, list[Row]]:
        """The versions that trained each of these turns, oldest first, without the effects."""
        columns, here = "turn, version, replayed", marks(len(turns))
        return self._grouped(f"{columns} FROM trained WHERE turn IN ({here}) ORDER BY version", turns, "turn")

    def _grouped(self, query: str, values: Sequence[Any], by: str = "seq") -> Mapping[Any, list[Row]]:
        groups: defaultdict[Any, list[Row]] = defaultdict(list)
        for row in self._db.rows(f"SELECT {query}", values):
            groups[row[by]].append(row)
        return groups

    def group_rewards(self, turns: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """For each of these turns, the rewards of all judged turns of its scope with the same prompt ids.

        In the order of arrival, its own included, whatever became of the others.
        """
        rewards: dict[str, list[int]] = defaultdict(list)
        for start in range(0, len(turns), PAGE):
            part = turns[start : start + PAGE]
            for row in self._db.rows(
                f"SELECT own.id, v.reward FROM {SAME_PROMPT} WHERE own.id IN ({marks(len(part))})"
                " ORDER BY t.seq",
                part,
            ):
                rewards[row["id"]].append(row["reward"])
        return {turn: tuple(found) for turn, found in rewards.items()}

    def good_sibling(self, turn: str) -> str | None:
        """The newest response in text to the turn's prompt, of its scope, with a good verdict and no doubt
        about it; None: there is none."""
        rows = self._db.rows(
            f"SELECT c.message FROM {SAME_PROMPT} WHERE own.id = ? AND t.id <> own.id AND v.reward > 0"
            " AND v.flags IS NULL"
            " AND t.kind = 'main' AND t.state IN ('JUDGED', 'TRAINED')"
            f" AND t.{INCLUDED} ORDER BY t.seq DESC",
            (turn,),
        )
        messages = (unpack_message(row["message"]) for row in rows)
        return next((each.content for each in messages if each.content and not each.tool_calls), None)

    def trained_with_hints(
        self, *, limit: int, min_version: int, seed: int, adapter: str = SHARED
    ) -> list[Record]:
        """Trained turns of an adapter that have hints, chosen at random by `seed`, for replay.

        Only turns whose oldest token was sampled by `min_version` or later.
        """
        rows = self._db.rows(
            "SELECT t.seq FROM turns t JOIN verdicts v USING (seq) JOIN contents USING (seq)"
            " WHERE t.state = 'TRAINED' AND v.hinted = 1 AND t.oldest_version >= ? AND t.adapter = ?"
            f" AND t.{INCLUDED} ORDER BY t.seq",
            (min_version, adapter),
        )
        seqs = [row["seq"] for row in rows]
        return self._records(random.Random(seed).sample(seqs, min(limit, len(seqs))))

    def to_pass_on(self, *, limit: int) -> list[Record]:
        """Turns that trained a personal adapter and no version of the shared one, oldest first."""
        rows = self._db.rows(
            "SELECT t.seq FROM turns t JOIN contents USING (seq)"
            " WHERE t.state = 'TRAINED' AND t.adapter <> ?"
            f" AND t.{INCLUDED} AND NOT EXISTS ("
            "SELECT 1 FROM trained r JOIN versions v ON v.number = r.version"
            " WHERE r.turn = t.id AND v.adapter = ?) ORDER BY t.seq LIMIT ?",
            (SHARED, SHARED, limit),
        )
        return self._records([row["seq"] for row in rows])

    def votes_on(
        self, signature: str, *, after: str | None = None, adapter: str = SHARED
    ) -> Mapping[str, Votes]:
        """Each source's votes on calls of this kind, in verdicts for an adapter that no person refused.
        `after`: only on calls that follow a call of that kind, or, if it is empty, that follow none.

        Those that contradict others count once a person accepted them. A source is a key, whatever its
        clients call themselves (`source_of`).
        """
        self._db.hold(f"votes {signature}")
        only, values = ("", ()) if after is None else ("AND v.previous = ?", (after,))
        return self._votes(VOTES.format(kind="v.signature = ?", only=only), (signature, adapter, *values))

    def votes_on_text(self, adapter: str = SHARED) -> Mapping[str, Votes]:
        """As `votes_on`, on responses without a call among the newest verdicts; rejections without a hint."""
        kind = "v.signature IS NULL AND NOT (v.reward < 0 AND v.hinted = 1)"
        newest = f"AND v.seq > (SELECT coalesce(max(seq), 0) - {TEXTS} FROM verdicts)"
        return self._votes(VOTES.format(kind=kind, only=newest), (adapter,))

    def _votes(self, sql: str, values: Sequence[Any]) -> Mapping[str, Votes]:
        counted = by_source(self._db.rows(sql, tuple(values)), "approved", "rejected")
        return {source: Votes(**counts) for source, counts in counted.items()}

    def trained_since(self, at: float) -> Mapping[str, int]:
        """How many turns of each source versions made since then trained on as new ones, without practice."""
        rows = self._db.rows(
            "SELECT t.scope, count(*) AS turns FROM versions v"
            " JOIN trained ON trained.version = v.number AND trained.replayed = 0"
            " JOIN turns t ON t.id = trained.turn WHERE v.created >= ? AND t.kind <> 'practice'"
            " GROUP BY t.scope",
            (at,),
        )
        return {source: counts["turns"] for source, counts in by_source(rows, "turns").items()}

    def contradictions(self, source: str) -> int:
        """How many rejections of a source contradict what others approved, and no person accepted."""
        rows = self._db.rows(
            "SELECT t.scope, count(*) AS turns FROM verdicts v JOIN turns t USING (seq)"
            f" WHERE v.flags IS NOT NULL AND v.flags LIKE '%\"{Flag.CONTRADICTS}\"%' AND v.reward < 0"
            " AND coalesce(v.review, '') <> ? GROUP BY t.scope",
            (ACCEPTED,),
        )
        return by_source(rows, "turns")[source]["turns"]


def by_source(rows: Sequence[Row], *columns: str) -> defaultdict[str, Counter[str]]:
    """The sums of columns over the rows of each source's scopes."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for column in columns:
            found[source_of(row["scope"])][column] += row[column]
    return found


def conditions(where: Filter) -> tuple[str, list[Any]]:
    """Further conditions on `turns t`, and their values."""
    names = ("session", "state", "reason", "kind", "scope")
    plain = {name: getattr(where, name) for name in names}
    chosen = {column: value for column, value in plain.items() if value is not None}
    sql = "".join(f" AND t.{column} = ?" for column in chosen)
    values: list[Any] = list(chosen.values())
    if where.practised is not None:
        sql += f" AND t.kind {'=' if where.practised else '<>'} 'practice'"
    if where.version is not None:
        sql += " AND t.id IN (SELECT turn FROM trained WHERE version = ? AND replayed = 0)"
        values.append(where.version)
    return sql, values


def _record(
    row: Row,
    whole: Mapping[str, bytes],
    votes: Sequence[Row],
    feedback: Sequence[Row],
    trained: Sequence[Row],
) -> Record:
    next_state = verdict = None
    if row["messages"] is not None or feedback:
        next_state = read(NextState, row, feedback=_feedback(feedback))
    if row["reward"] is not None:
        verdict = read(Verdict, row, votes=tuple(read(Vote, vote) for vote in votes))
    return read(
        Record,
        row,
        turn=read_turn(row, whole),
        next_state=next_state,
        verdict=verdict,
        trained_in=versions_of(trained, replayed=False),
        replayed_in=versions_of(trained, replayed=True),
        accepted=None if row["review"] is None else row["review"] == ACCEPTED,
    )


def _feedback(rows: Sequence[Row]) -> Feedback | None:
    """Of each part the newest; None without rows, which come oldest first."""
    if not rows:
        return None

    def newest(column: str) -> Any:
        return next((row[column] for row in reversed(rows) if row[column] is not None), None)

    return Feedback(
        reward=newest("reward"), text=newest("words"), hint=newest("hint"), correction=newest("correction")
    )


def versions_of(trained: Sequence[Row], *, replayed: bool) -> tuple[int, ...]:
    return tuple(row["version"] for row in trained if bool(row["replayed"]) is replayed)
