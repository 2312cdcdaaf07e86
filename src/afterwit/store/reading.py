"""Turns with everything that happened to them, and counts over them. Read-only."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from afterwit.adapters import SHARED
from afterwit.errors import StoreError, TurnAmbiguous, TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.message import Message
from afterwit.store.database import ALL, LAST_CHARACTER, Database, Part, Row, marks
from afterwit.store.prefix_delta import whole_values
from afterwit.store.records import Counts, Filter, Record
from afterwit.store.rows import read, read_flags, read_turn, unpack_message, unpack_messages
from afterwit.teaching.sources import Votes
from afterwit.turn import source_of
from afterwit.verdict import Feedback, Flag, NextState, Verdict, Vote

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
    WHERE v.signature = ? AND t.adapter = ? {{only}} AND coalesce(v.review, '') <> '{REFUSED}'
    AND (v.flags IS NULL OR v.flags NOT LIKE '%contradict%' OR v.review = '{ACCEPTED}')
    AND t.session NOT IN (SELECT session FROM excluded) GROUP BY t.scope
"""
"""`contradict` is in the flags of both a person's word and a failed call that contradict others."""


class Reading(Part):
    """Queries of all stages and commands."""

    def turn(self, turn: str) -> Record:
        """Raises TurnNotFound for an unknown turn, or one whose content was pruned."""
        row = self._database.row("SELECT seq FROM turns WHERE id = ?", (turn,))
        if row is None:
            raise TurnNotFound(f"there is no turn {turn}")
        records = records_by_seq(self._database, (row["seq"],))
        if not records:
            raise TurnNotFound(f"the content of turn {turn} was removed to keep the store within its limits")
        return records[0]

    def scopes(self, turns: Collection[str]) -> dict[str, str]:
        """The scope of each of these turns; those without content are left out.

        Takes as long for a stored turn as for an unknown one: no content is read.
        """
        rows = self._database.rows(
            f"SELECT id, scope FROM turns JOIN contents USING (seq) WHERE id IN ({marks(len(turns))})",
            tuple(turns),
        )
        return {row["id"]: row["scope"] for row in rows}

    def messages_of(self, turns: Collection[str]) -> dict[str, Message]:
        """The response of each of these turns; those without content are left out."""
        rows = self._database.rows(
            "SELECT t.id, c.message FROM turns t JOIN contents c USING (seq)"
            f" WHERE t.id IN ({marks(len(turns))})",
            tuple(turns),
        )
        return {row["id"]: unpack_message(row["message"]) for row in rows}

    def resolve(self, prefix: str) -> str:
        """The id of the only turn whose id begins with `prefix`; a whole id is its own.

        Raises TurnNotFound if there is none, TurnAmbiguous with the matches' ids if there are several.
        """
        found = self._database.rows(
            "SELECT id FROM turns WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (prefix, prefix + LAST_CHARACTER, NAMED + 1),
        )
        if not found:
            raise TurnNotFound(f"there is no turn {prefix}")
        ids = [row["id"] for row in found]
        if len(ids) > 1 and ids[0] != prefix:
            more = ", ..." if len(ids) > NAMED else ""
            raise TurnAmbiguous(f"several turns begin with {prefix}: {', '.join(ids[:NAMED])}{more}")
        return str(ids[0])

    def turns(
        self,
        where: Filter | None = None,
        *,
        after: int = 0,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        """Turns in the order of arrival, or the newest first; with `after`, those after this `seq`."""
        clauses, values = clauses_of(where or Filter())
        if not newest_first:
            clauses, values = f"{clauses} AND t.seq <= ?", [*values, self._database.settled()]
        order, past = ("DESC", "<") if newest_first else ("ASC", ">")
        position = after if after or not newest_first else ALL
        left = limit
        while left is None or left > 0:
            sql = f"SELECT t.seq FROM turns t JOIN contents USING (seq) WHERE t.seq {past} ?{clauses}"
            size = PAGE if left is None else min(PAGE, left)
            found = self._database.rows(f"{sql} ORDER BY t.seq {order} LIMIT {size}", (position, *values))
            if not found:
                return
            records = records_by_seq(self._database, [row["seq"] for row in found])
            yield from reversed(records) if newest_first else records
            last = found[-1]["seq"]
            if last == position or (last < position) != newest_first:
                place = self._database.place
                raise StoreError(f"{place} is damaged: turns stand out of order. Restore it from a copy.")
            position = last
            left = None if left is None else left - len(found)

    def counts(self) -> Counts:
        """Turns by state, and ended turns by reason."""
        states: dict[State, int] = defaultdict(int)
        reasons: dict[Reason, int] = {}
        for row in self._database.rows(
            "SELECT state, reason, count(*) AS count FROM turns GROUP BY state, reason"
        ):
            states[State(row["state"])] += row["count"]
            if row["reason"] is not None:
                reasons[Reason(row["reason"])] = row["count"]
        invalid = self._database.rows("SELECT count(*) AS count FROM votes WHERE value IS NULL")
        return Counts(states=dict(states), reasons=reasons, invalid_votes=invalid[0]["count"])

    def group_rewards(self, turns: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """For each of these turns, the rewards of all judged turns of its scope with the same prompt ids.

        In the order of arrival, its own included, whatever became of the others.
        """
        rewards: dict[str, list[int]] = defaultdict(list)
        for start in range(0, len(turns), PAGE):
            part = turns[start : start + PAGE]
            for row in self._database.rows(
                "SELECT own.id, v.reward FROM turns own JOIN contents oc USING (seq)"
                " JOIN turns t ON t.prompt_hash = own.prompt_hash AND t.scope = own.scope"
                " JOIN contents c ON c.seq = t.seq AND c.prompt_digest = oc.prompt_digest"
                f" JOIN verdicts v ON v.seq = t.seq WHERE own.id IN ({marks(len(part))}) ORDER BY t.seq",
                part,
            ):
                rewards[row["id"]].append(row["reward"])
        return {turn: tuple(found) for turn, found in rewards.items()}

    def trained_with_hints(
        self, *, limit: int, min_version: int, seed: int, adapter: str = SHARED
    ) -> list[Record]:
        """Trained turns of an adapter that have hints, chosen at random by `seed`, for replay.

        Only turns whose oldest token was sampled by `min_version` or later.
        """
        found = self._database.rows(
            "SELECT t.seq FROM turns t JOIN verdicts v USING (seq) JOIN contents USING (seq)"
            " WHERE t.state = 'TRAINED' AND v.hinted = 1 AND t.oldest_version >= ? AND t.adapter = ?"
            " AND t.session NOT IN (SELECT session FROM excluded) ORDER BY t.seq",
            (min_version, adapter),
        )
        seqs = [row["seq"] for row in found]
        return records_by_seq(self._database, random.Random(seed).sample(seqs, min(limit, len(seqs))))

    def to_pass_on(self, *, limit: int) -> list[Record]:
        """Turns that trained a personal adapter and no version of the shared one, oldest first."""
        found = self._database.rows(
            "SELECT t.seq FROM turns t JOIN contents USING (seq)"
            " WHERE t.state = 'TRAINED' AND t.adapter <> ?"
            " AND t.session NOT IN (SELECT session FROM excluded) AND NOT EXISTS ("
            "SELECT 1 FROM trained r JOIN versions v ON v.number = r.version"
            " WHERE r.turn = t.id AND v.adapter = ?) ORDER BY t.seq LIMIT ?",
            (SHARED, SHARED, limit),
        )
        return records_by_seq(self._database, [row["seq"] for row in found])

    def votes_on(
        self, signature: str, *, after: str | None = None, adapter: str = SHARED
    ) -> Mapping[str, Votes]:
        """Each source's votes on calls of this kind, in verdicts for an adapter that no person refused.
        `after`: only on calls that follow a call of that kind, or, if it is empty, that follow none.

        Those that contradict others count once a person accepted them. A source is a key, whatever its
        clients call themselves (`source_of`).
        """
        self._database.hold(f"votes {signature}")
        only, values = ("", ()) if after is None else ("AND v.previous = ?", (after,))
        rows = self._database.rows(VOTES.format(only=only), (signature, adapter, *values))
        approved, rejected = _by_source(rows, "approved"), _by_source(rows, "rejected")
        return {source: Votes(approved=approved[source], rejected=rejected[source]) for source in approved}

    def trained_since(self, at: float) -> Mapping[str, int]:
        """How many turns of each source versions made since then trained on as new ones."""
        rows = self._database.rows(
            "SELECT t.scope, count(*) AS count FROM versions v"
            " JOIN trained ON trained.version = v.number AND trained.replayed = 0"
            " JOIN turns t ON t.id = trained.turn WHERE v.created >= ? GROUP BY t.scope",
            (at,),
        )
        return _by_source(rows, "count")

    def contradictions(self, source: str) -> int:
        """How many rejections of a source contradict what others approved, and no person accepted."""
        rows = self._database.rows(
            "SELECT t.scope, count(*) AS count FROM verdicts v JOIN turns t USING (seq)"
            f" WHERE v.flags IS NOT NULL AND v.flags LIKE '%\"{Flag.CONTRADICTS}\"%' AND v.reward < 0"
            " AND coalesce(v.review, '') <> ? GROUP BY t.scope",
            (ACCEPTED,),
        )
        return _by_source(rows, "count")[source]


def _by_source(rows: Sequence[Row], column: str) -> Counter[str]:
    """The sum of a column over the rows of each source's scopes."""
    found: Counter[str] = Counter()
    for row in rows:
        found[source_of(row["scope"])] += row[column]
    return found


def clauses_of(where: Filter) -> tuple[str, list[Any]]:
    """Further conditions on `turns t`, and their values."""
    plain = {"session": where.session, "state": where.state, "reason": where.reason, "kind": where.kind}
    chosen = {column: value for column, value in plain.items() if value is not None}
    sql = "".join(f" AND t.{column} = ?" for column in chosen)
    values: list[Any] = list(chosen.values())
    if where.version is not None:
        sql += " AND t.id IN (SELECT turn FROM trained WHERE version = ? AND replayed = 0)"
        values.append(where.version)
    return sql, values


def records_by_seq(database: Database, seqs: Sequence[int]) -> list[Record]:
    """Whole records in the order of arrival; turns whose content was pruned are left out.

    Raises StoreError with the id of a turn whose rows are damaged.
    """
    rows = database.rows(f"{RECORD} WHERE t.seq IN ({marks(len(seqs))}) ORDER BY t.seq", seqs)
    votes = _grouped(database, "votes", "seq", seqs, order="seq, place")
    feedback = _grouped(database, "feedback", "seq", seqs, order="number")
    trained = _grouped(database, "trained", "turn", [row["id"] for row in rows], order="version")
    whole = whole_values(database, [row["seq"] for row in rows])
    found = []
    for row in rows:
        seq = row["seq"]
        if seq not in whole:
            continue
        try:
            found.append(_record(row, whole[seq], votes[seq], feedback[seq], trained[row["id"]]))
        except (ValueError, LookupError, TypeError, struct.error) as error:
            raise StoreError(
                f"turn {row['id']} is damaged in {database.place}: restore the store from a copy"
            ) from error
    return found


def _grouped(
    database: Database, table: str, by: str, values: Sequence[Any], *, order: str
) -> defaultdict[Any, list[Row]]:
    groups: defaultdict[Any, list[Row]] = defaultdict(list)
    sql = f"SELECT * FROM {table} WHERE {by} IN ({marks(len(values))}) ORDER BY {order}"
    for row in database.rows(sql, values):
        groups[row[by]].append(row)
    return groups


def _record(
    row: Row,
    whole: Mapping[str, bytes],
    votes: Sequence[Row],
    feedback: Sequence[Row],
    trained: Sequence[Row],
) -> Record:
    """From a row of `RECORD` and the rows that belong to it."""
    return read(
        Record,
        row,
        turn=read_turn(row, whole),
        next_state=_next_state(row["messages"], feedback),
        verdict=_verdict(row, votes),
        trained_in=tuple(each["version"] for each in trained if not each["replayed"]),
        replayed_in=tuple(each["version"] for each in trained if each["replayed"]),
        flags=read_flags(row["flags"]),
        accepted=None if row["review"] is None else row["review"] == ACCEPTED,
    )


def _next_state(messages: bytes | None, feedback: Sequence[Row]) -> NextState | None:
    if messages is None and not feedback:
        return None
    newest = Feedback(reward=feedback[-1]["reward"], text=feedback[-1]["words"]) if feedback else None
    return NextState(messages=unpack_messages(messages), feedback=newest)


def _verdict(row: Row, votes: Sequence[Row]) -> Verdict | None:
    if row["reward"] is None:
        return None
    hints, cast = tuple(orjson.loads(row["hints"])), tuple(read(Vote, vote) for vote in votes)
    return read(Verdict, row, hints=hints, votes=cast)
