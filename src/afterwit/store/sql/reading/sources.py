"""The port's `Sources` in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from afterwit.core.adapters import SHARED
from afterwit.core.teaching import Flag, Votes
from afterwit.core.turn import source_of
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import Row
from afterwit.store.sql.rows.codec import ACCEPTED, REFUSED

CONTRADICTS = f"instr(v.flags, '\"{Flag.CONTRADICTS}\"') > 0"
AGAINST_OTHERS = "instr(v.flags, 'contradict') > 0"
"""A person's word or a failed call (`tools_contradict`)."""
VOTES = f"""
    SELECT t.scope, count(*) FILTER (WHERE v.reward > 0) AS approved,
        count(*) FILTER (WHERE v.reward < 0) AS rejected
    FROM verdicts v JOIN turns t USING (seq)
    WHERE v.signature = ? AND t.adapter = ? {{after}} AND coalesce(v.review, '') <> '{REFUSED}'
    AND (v.flags IS NULL OR NOT {AGAINST_OTHERS} OR v.review = '{ACCEPTED}')
    AND t.session NOT IN (SELECT session FROM excluded) GROUP BY t.scope
"""
EARLIER = f"""
    SELECT t.scope, count(*) AS count FROM verdicts v JOIN turns t USING (seq)
    WHERE v.flags IS NOT NULL AND {CONTRADICTS} AND v.reward < 0
    AND coalesce(v.review, '') <> '{ACCEPTED}' GROUP BY t.scope
"""


class SqlSources(Component):
    def votes_on(
        self, signature: str, *, after: str | None = None, adapter: str = SHARED
    ) -> Mapping[str, Votes]:
        self._database.hold(f"votes {signature}")
        more, named = ("", ()) if after is None else ("AND v.previous = ?", (after,))
        rows = self._database.rows(VOTES.format(after=more), (signature, adapter, *named))
        approved, rejected = _by_source(rows, "approved"), _by_source(rows, "rejected")
        return {source: Votes(approved=approved[source], rejected=rejected[source]) for source in approved}

    def trained_since(self, at: float) -> Mapping[str, int]:
        rows = self._database.rows(
            "SELECT t.scope, count(*) AS count FROM versions v"
            " JOIN trained ON trained.version = v.number AND trained.replayed = 0"
            " JOIN turns t ON t.id = trained.turn WHERE v.created >= ? GROUP BY t.scope",
            (at,),
        )
        return _by_source(rows, "count")

    def contradictions(self, source: str) -> int:
        return _by_source(self._database.rows(EARLIER), "count")[source]


def _by_source(rows: Sequence[Row], column: str) -> Counter[str]:
    """The sum of a column over the rows of each source's scopes."""
    found: Counter[str] = Counter()
    for row in rows:
        found[source_of(row["scope"])] += row[column]
    return found
