"""Lessons and the turns that carry or practised them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf, nextafter
from typing import Any

import orjson

from afterwit.errors import SettingError
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import STAND, Correction, Fresh, Given, Lesson, PractisedAnswer, alike, hint_of
from afterwit.store.database import Row, marks
from afterwit.store.moves import INCLUDED
from afterwit.store.reading import ACCEPTED, Reading, Record
from afterwit.store.recording import Recording
from afterwit.store.rows import content_columns, first_columns, read, unpack_message
from afterwit.store.upkeep import UNSAID, Orders
from afterwit.turn import Message, RecordedTurn, Turn, adapter_of, source_of
from afterwit.verdict import Source

HELD = "lessons"
"""Held while lessons are added, so that no similar two are added at once."""

TAUGHT = """
    k.*, t.id AS turn, t.created AS given, t.session, t.scope, t.state, t.reason, t.oldest_version, v.flags,
    v.review
    FROM taught k JOIN turns t USING (seq) LEFT JOIN verdicts v USING (seq)
    WHERE k.lesson IN ({}) ORDER BY k.seq
"""

NEWEST_SAID = "(SELECT max(k.at) FROM taught k WHERE k.lesson = l.number AND k.prompt IS NULL)"

GREATEST = (
    "SELECT coalesce(max(number), 0) FROM"
    " (SELECT number FROM lessons UNION SELECT lesson FROM taught UNION SELECT lesson FROM earlier) n"
)
"""The greatest number of a lesson, also of one that is gone and was practised or read: none gets it again."""

EXCLUDED = "session IN (SELECT session FROM excluded)"

TEACHES = f"""
    t.{INCLUDED}
    AND (t.state IN ('JUDGED', 'TRAINED') OR t.reason IN ({marks(len(STAND))}))
"""
"""Whether a corrected turn `t` still teaches its lesson."""

UNFOUNDED = f"""
    state = 'JUDGED' AND kind = 'practice' AND (owner IS NULL OR lease_until <= ?) AND NOT EXISTS (
        SELECT 1 FROM taught k JOIN lessons l ON l.number = k.lesson
        WHERE k.seq = turns.seq AND l.dropped IS NULL AND (k.words IN ('', l.words) OR l.words IS NULL)
        AND EXISTS (
            SELECT 1 FROM taught s JOIN turns t ON t.seq = s.seq
            WHERE s.lesson = k.lesson AND s.prompt IS NULL AND {TEACHES}
        )
        AND NOT EXISTS (SELECT 1 FROM turns p WHERE p.id = k.prompt AND p.{EXCLUDED})
        AND NOT EXISTS (
            SELECT 1 FROM earlier e WHERE e.seq = turns.seq AND NOT EXISTS (
                SELECT 1 FROM turns t JOIN taught s ON s.seq = t.seq JOIN lessons l ON l.number = s.lesson
                WHERE t.id = e.said AND s.lesson = e.lesson AND {TEACHES}
                AND l.dropped IS NULL AND (l.words = e.words OR l.words IS NULL)
                AND (l.scope IS NULL OR l.scope = (
                    SELECT m.scope FROM taught k JOIN lessons m ON m.number = k.lesson WHERE k.seq = turns.seq
                ))
            )
        )
    )
"""
"""Whether an answer waits for the learner with a lesson that does not teach any more in its words, or whose
teacher read a lesson that does not teach any more."""

NOT_ASKED_AGAIN = (
    *(Reason.FORGOTTEN, Reason.EXCLUDED, Reason.HOLDS_SECRET, Reason.REVIEW_REFUSED),
    *(Reason.KEY_DOES_NOT_TEACH, Reason.AMBIGUOUS_PARENT, Reason.SUPERSEDED, Reason.CLIENT_LEFT),
    *(Reason.RENDER_MISMATCH, Reason.TOO_LONG, Reason.PENALTIES, Reason.ALL_FORCED),
)
"""Ends of turns whose prompts are not asked again."""

PROMPTS = f"""
    SELECT t.seq, t.id, t.session, t.scope, c.message FROM turns t JOIN contents c USING (seq)
    WHERE t.kind = 'main' AND t.adapter = ? AND c.teaches = 1
    AND coalesce(t.reason, '') NOT IN ({marks(len(NOT_ASKED_AGAIN))})
    AND t.{INCLUDED} {{}} ORDER BY t.seq DESC LIMIT ?
"""


class Lessons(Recording, Reading, Orders):
    """Written in the judge's transaction, by practice and by people."""

    def teach(self, turn: RecordedTurn, words: str, *, now: float) -> int:
        """The turn carries a lesson in these words: its source's similar one, else a new one. Returns the
        lesson's number. A lesson that it carried before is left."""
        with self._db.transaction():
            self._db.hold(HELD)
            adapter = adapter_of(turn)
            found = self._alike(adapter, turn.source, words)
            if found is None:
                found = 1 + int(self._db.value(GREATEST))
                self._db.insert("lessons", {"number": found, "adapter": adapter, "source": turn.source})
            seq = self._db.value("SELECT seq FROM turns WHERE id = ?", (turn.id,))
            self._db.execute("DELETE FROM taught WHERE seq = ?", (seq,))
            self._carry(seq, found, turn, words, now=now)
            self._db.execute(UNSAID)
        return found

    def _alike(self, adapter: str, source: str, words: str) -> int | None:
        """A person's edit or any of a lesson's turns may have the words."""
        rows = self._db.rows(
            "SELECT number, l.words FROM lessons l WHERE l.words IS NOT NULL AND adapter = ? AND source = ?"
            " UNION SELECT number, k.words FROM lessons l"
            " JOIN taught k ON k.lesson = number AND prompt IS NULL WHERE adapter = ? AND source = ?"
            " ORDER BY number",
            (adapter, source, adapter, source),
        )
        return next((row["number"] for row in rows if alike(words, row["words"])), None)

    def untaught(self, turn: str) -> None:
        """The turn carries no lesson any more: its verdict has changed."""
        with self._db.transaction():
            sql = "DELETE FROM taught WHERE prompt IS NULL AND seq = (SELECT seq FROM turns WHERE id = ?)"
            if self._db.execute(sql, (turn,)):
                self._db.execute(UNSAID)

    def lessons_given(self) -> list[Given]:
        """Every lesson, the last given first."""
        newest = (
            "SELECT k.words FROM taught k WHERE k.lesson = l.number AND k.prompt IS NULL ORDER BY k.at DESC"
        )
        rows = self._db.rows(
            f"SELECT number, adapter, source, scope, coalesce(words, ({newest} LIMIT 1)) AS words,"
            f" dropped IS NOT NULL AS dropped FROM lessons l ORDER BY {NEWEST_SAID} DESC, number"
        )
        return [read(Given, row) for row in rows]

    def lessons(
        self, *, said_since: float = 0.0, adapter: str | None = None, numbers: Sequence[int] | None = None
    ) -> list[Lesson]:
        """The lessons last given since then, oldest first: all, those of an adapter, or of these numbers."""
        only, wanted = ("", ()) if adapter is None else (" AND l.adapter = ?", (adapter,))
        if numbers is not None:
            only, wanted = f"{only} AND l.number IN ({marks(len(numbers))})", (*wanted, *numbers)
        rows = self._db.rows(
            f"SELECT * FROM lessons l WHERE {NEWEST_SAID} >= ?{only} ORDER BY number", (said_since, *wanted)
        )
        numbers = [row["number"] for row in rows]
        taught = self._grouped(TAUGHT.format(marks(len(numbers))), numbers, "lesson")
        gone = self._gone() if rows else ()
        return [_lesson(row, taught[row["number"]], gone) for row in rows]

    def lesson(self, number: int) -> Lesson:
        """Raises SettingError if there is none of this number."""
        if not (found := self.lessons(numbers=[number])):
            raise SettingError(f"there is no lesson {number}: `afterwit lessons` lists them")
        return found[0]

    def lessons_on(self, turns: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Number and words of the lesson that each of these turns carries or practised; others are left
        out."""
        rows = self._db.rows(
            "SELECT t.id, k.lesson, coalesce(l.words, k.words) AS words"
            " FROM turns t JOIN taught k USING (seq) JOIN lessons l ON l.number = k.lesson"
            f" WHERE k.words <> '' AND t.id IN ({marks(len(turns))})",
            turns,
        )
        return {row["id"]: (row["lesson"], row["words"]) for row in rows}

    def change_lesson(self, number: int, **columns: Any) -> None:
        """A person's word on a lesson: `words`, `general`, `scope` or `dropped`; or what it `spoils`.
        SettingError if there is none."""
        with self._db.transaction():
            self.lesson(number)
            changes = ", ".join(f"{name} = ?" for name in columns)
            self._db.execute(f"UPDATE lessons SET {changes} WHERE number = ?", (*columns.values(), number))

    def end_unfounded(self, *, now: float) -> int:
        """End the waiting answers whose lesson is gone, dropped or in other words now, whose corrections were
        all taken back, or whose prompt's session is excluded, or whose teacher read such a lesson; returns
        how many."""
        values = (now, *STAND, *STAND)
        if not self._states(UNFOUNDED, values):  # nearly always: the learner asks at every look
            return 0
        with self._db.transaction():
            found = self._states(UNFOUNDED, values)
            for current in found:
                self._move(current, State.SKIPPED, now, Reason.REVERTED)
        return len(found)

    def prompts(self, lesson: Lesson, *, limit: int) -> list[tuple[int, str, str, Message]]:
        """The newest turns of a lesson's source and adapter whose prompts may be asked again, or of
        the client to which it is restricted: `seq`, id, session and response of each, the newest first."""
        only, named = ("", ()) if lesson.scope is None else ("AND t.scope = ?", (lesson.scope,))
        rows = self._db.rows(PROMPTS.format(only), (lesson.adapter, *NOT_ASKED_AGAIN, *named, limit))
        return [
            (row["seq"], row["id"], row["session"], unpack_message(row["message"]))
            for row in rows
            if source_of(row["scope"]) == lesson.source
        ]

    def asked(self, seqs: Sequence[int]) -> list[Record]:
        """These turns, whole, in this order; those without content are left out."""
        found = {record.seq: record for record in self._records(seqs)}
        return [found[seq] for seq in seqs if seq in found]

    def newest_version(self, adapter: str) -> int:
        """The number of an adapter's newest version, served or not; 0: the base."""
        sql = "SELECT coalesce(max(number), 0) FROM versions WHERE adapter = ?"
        return int(self._db.value(sql, (adapter,)))

    def practised_since(self, at: float, *, until: float) -> tuple[int, int]:
        """How many answers were sampled for practice between these times, and how many of these had something
        to teach."""
        (row,) = self._db.rows(
            "SELECT count(*) AS sampled, count(*) FILTER (WHERE coalesce(t.reason, '') <> ?) AS taught"
            " FROM taught k JOIN turns t USING (seq) WHERE k.prompt IS NOT NULL AND k.at > ? AND k.at <= ?",
            (Reason.ALREADY_GOOD, at, until),
        )
        return row["sampled"], row["taught"]

    def is_unchanged(self, lesson: Lesson) -> bool:
        """Whether a lesson still has the corrections and orders with which it was read."""
        found = self.lessons(numbers=[lesson.number])
        return any(_ordered(each) == _ordered(lesson) for each in found)

    def practised(self, lesson: Lesson, words: str, answers: Sequence[Fresh], *, now: float) -> bool:
        """Store answers; those without a reason wait for the learner with the words, after those of earlier
        lessons, as their hint. All or nothing.

        False, and nothing is stored, if another process practised the lesson since it was read, or it or an
        earlier one was dropped, edited, restricted or forgotten, or a prompt was forgotten or excluded.
        """
        prompts, sessions = [each.prompt for each in answers], {each.turn.session for each in answers}
        with self._db.transaction():
            self._db.hold(HELD)
            known = [lesson, *(other.lesson for each in answers for other in each.earlier)]
            present = {each.number: each for each in self.lessons(numbers=[each.number for each in known])}
            if any(_ordered(present.get(each.number)) != _ordered(each) for each in known):
                return False
            if _sampled(present[lesson.number]) != _sampled(lesson):
                return False
            gone = f"id IN ({marks(len(prompts))}) AND (reason = ? OR {EXCLUDED})"
            if self.excluded() & sessions or self._states(gone, (*prompts, Reason.FORGOTTEN)):
                return False
            at = max(now, nextafter(lesson.newest, inf))  # later also if the clock was set back
            for answer in answers:
                self._practise(lesson.number, words, answer, at=at, now=now)
        return True

    def _practise(self, lesson: int, words: str, answer: Fresh, *, at: float, now: float) -> None:
        """No hash finds it, so it is never a parent."""
        turn, prompt, reason, gap, along, reward, earlier = answer
        words = "" if along else words
        hints = orjson.dumps([hint_of(earlier, words)])
        columns = first_columns(turn, waits=State.JUDGED, reason=reason, now=now)
        columns |= {"prompt_hash": b"", "full_hash": b"", "depth": 0, "full_depth": 0, "delivered": 1}
        self._writer.add(columns, content_columns(turn), parent=prompt)
        seq = self._db.value("SELECT seq FROM turns WHERE id = ?", (turn.id,))
        self._carry(seq, lesson, turn, words, prompt=prompt, gap=gap, now=at)
        verdict = {"reward": reward, "source": Source.LESSON, "hints": hints, "hinted": True}
        self._db.insert(
            "verdicts", {"seq": seq, **verdict, "rl": reward != 0, "opd": True, "revision": 0, "at": now}
        )
        for other in earlier:
            said = {"said": other.correction.turn, "session": other.correction.session, "words": other.words}
            self._db.insert("earlier", {"seq": seq, "lesson": other.lesson.number, **said})

    def _carry(
        self,
        seq: int,
        lesson: int,
        turn: RecordedTurn,
        words: str,
        *,
        prompt: str | None = None,
        gap: float | None = None,
        now: float,
    ) -> None:
        row = {"seq": seq, "lesson": lesson, "prompt": prompt, "words": words, "gap": gap, "at": now}
        tokens = turn.sampled.forced.count(False) if isinstance(turn, Turn) else 0
        self._db.insert("taught", row | {"tokens": tokens})


def _ordered(lesson: Lesson | None) -> object:
    """A lesson's corrections and orders: they must not change before answers are stored whose teacher read
    it."""
    if lesson is None:
        return None
    return lesson.words, lesson.dropped, lesson.scope, [(each.turn, each.at) for each in lesson.corrections]


def _sampled(lesson: Lesson) -> tuple[int, int]:
    """How many answers practised a lesson: another process may practise it too."""
    return len(lesson.answers), len(lesson.along)


def _lesson(row: Row, taught: Sequence[Row], gone: Collection[int]) -> Lesson:
    """`gone`: versions that were taken back. Their good answers are none of the present weights."""

    def answer(each: Row) -> PractisedAnswer:
        stale = each["reason"] == Reason.ALREADY_GOOD and each["oldest_version"] in gone
        return read(PractisedAnswer, each, **({"reason": Reason.REVERTED} if stale else {}))

    corrections = tuple(
        read(Correction, each, accepted=each["review"] == ACCEPTED)
        for each in taught
        if each["prompt"] is None
    )
    practised = [each for each in taught if each["prompt"] is not None]
    return read(
        Lesson,
        row,
        words=row["words"] or corrections[0].words,
        edited=row["words"] is not None,
        general=None if row["general"] is None else bool(row["general"]),
        corrections=corrections,
        answers=tuple(answer(each) for each in practised if each["words"]),
        along=tuple(answer(each) for each in practised if not each["words"]),
    )
