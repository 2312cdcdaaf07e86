"""A made-up history of a home: sessions of an agent that works on files, judged and learned from."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from random import Random

from afterwit.chat_format.render import Renderer
from afterwit.lifecycle import Reason
from afterwit.practice.lessons import Fresh, Progress, standing
from afterwit.promotion.episodes import Episode, Event, EventKind
from afterwit.store import Store
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, ToolCall, Turn
from afterwit.verdict import Flag, Question, Source, Verdict, Vote
from afterwit.version import Effect, Origin, Probe, SuiteResult, Version

HOUR = 3600.0
BATCH, PRACTISED = 8, 4
SYSTEM = Message(role="system", content="You work in a project's folder. Use the tools.")
FILES = ("garden.cfg", "notes.txt", "prices.ini", "report.log", "letters.txt", "harbour.cfg")
ASKED = (
    "Change the colour in {file} from blue to green.",
    "Throw {file} away, please; we do not need it any more.",
    "Run check.py and tell me what it says about {file}.",
    "Write a greeting into {file}.",
)
CALLS = (
    ("edit", {"old": "blue", "new": "green"}),
    ("delete", {"dry_run": False}),
    ("run", {"command": "python check.py"}),
    ("write", {"text": "Good morning."}),
)
COMPLAINTS = (
    "You should read a file before you change it.",
    "Try it with dry_run first, always.",
    "It is python3 here, not python.",
    "Keep a copy of what was in the file.",
)
HINTS = (
    "Read the file before you edit it.",
    "Try a delete with dry_run before you really delete.",
    "Run scripts with python3.",
    "Copy an existing file before you overwrite it.",
)
DONE = (
    "I changed the colour from blue to green. Everything else in the file is as it was before.",
    "The file is gone now. I did not touch anything else in the folder.",
    "I ran the script with python: it says that all lines are as they should be.",
    "I wrote a greeting into the file. What was in it before is no longer there.",
)
KEPT = (
    "I read the file first, then changed the colour from blue to green.",
    "A dry run shows that it alone would go. Shall I delete it?",
    "I ran the script with python3: it says that all lines are as they should be.",
    "I kept a copy as letters.txt.bak, then wrote the greeting.",
)
"""Answers in which each hint is kept, by its place in HINTS."""
THANKS = ("Thank you, that is it.", "Good, exactly so.", "Perfect.")
PROBE = Probe(ids=(1, 2), logprobs=(-1.0,))


@dataclass
class History:
    """The events so far."""

    store: Store
    renderer: Renderer
    random: Random
    now: float
    version: int = 0
    turns: int = 0
    hinted: int = 0
    waiting: list[str] | None = None

    def play(self, sessions: int) -> None:
        """Play `sessions` sessions; people complain less as versions go by."""
        self.waiting = []
        self.store.commit_version(
            Version(number=0, parent=None, origin=Origin.BASE, created=self.now, probe=PROBE), now=self.now
        )
        for number in range(sessions):
            self._session(number)
            if len(self.waiting) >= BATCH:
                self._learn()

    def _session(self, number: int) -> None:
        kind, file = self.random.randrange(len(ASKED)), self.random.choice(FILES)
        asked = Message(role="user", content=ASKED[kind].format(file=file))
        session, messages = f"session-{number:05}", [SYSTEM, asked]
        kept = self.random.random() < 0.25 + 0.6 * min(1.0, self.version / 8)
        calls = [("read", {})] if kept and kind == 0 else []
        for name, more in [*calls, CALLS[kind]]:
            call = self._call(name, {"file": file, **more})
            turn = self._turn(session, messages, Message(role="assistant", tool_calls=(call,)))
            result = Message(
                role="tool",
                content=self.random.choice(("done", "1 line changed", "ok")),
                tool_call_id=call.id,
            )
            self._judge(turn, [result], reward=1 if kept else 0)
            messages += [Message(role="assistant", tool_calls=(call,)), result]
        reply = Message(role="assistant", content=DONE[kind])
        turn = self._turn(session, messages, reply)
        if number % 9 == 8:
            return  # no one replied
        words = self.random.choice(THANKS) if kept else COMPLAINTS[kind]
        hints = () if kept else (HINTS[kind],)
        self._judge(turn, [Message(role="user", content=words)], reward=1 if kept else -1, hints=hints)
        ended = Episode(
            turn=turn.id,
            session=session,
            source=turn.source,
            version=self.version,
            bad=None,
            complaint=not kept,
            kind=CALLS[kind][0],
            approved=(),
        )
        self.store.end_episode(ended, [], steps=[turn.id], now=self.now)

    def _call(self, name: str, more: dict[str, object]) -> ToolCall:
        return ToolCall(id=f"call{self.turns}", name=name, arguments=json.dumps(more))

    def _turn(self, session: str, messages: list[Message], reply: Message) -> Turn:
        self.now += self.random.uniform(20, 400)
        self.turns += 1
        said = reply.content or "".join(f"{call.name} {call.arguments}" for call in reply.tool_calls)
        ids = self.renderer.encode(said)
        logprobs = tuple(math.log(min(1.0, self.random.betavariate(5, 0.6) + 1e-3)) for _ in ids)
        cut = self.random.randrange(len(ids)) if self.version and self.turns % 4 == 0 else 0
        versions = (max(self.version - 1, 0),) * cut + (self.version,) * (len(ids) - cut)
        turn = Turn(
            id=f"01k{self.turns:07}",
            scope=self.random.choice(("local/opencode", "local/opencode", "local/openclaw")),
            session=session,
            parent=None,
            kind=Kind.MAIN,
            created=self.now,
            model="policy",
            conversation=Conversation(messages=tuple(messages)),
            prompt_ids=self.renderer.prompt_ids(Conversation(messages=tuple(messages))),
            sampling=Sampling(max_tokens=256),
            sampled=Sampled(ids=ids, logprobs=logprobs, versions=versions, forced=(False,) * len(ids)),
            message=reply,
            finish=Finish.TOOL_CALLS if reply.tool_calls else Finish.STOP,
        )
        name = turn.id.encode()
        self.store.add_turn(
            turn,
            prompt_hash=name,
            full_hash=name,
            depth=1,
            full_depth=2,
            delivered=True,
            reason=None,
            now=self.now,
        )
        return turn

    def _judge(
        self, turn: Turn, followed: list[Message], *, reward: int, hints: tuple[str, ...] = ()
    ) -> None:
        self.now += 5
        self.store.answer(turn.id, followed, answered_by=None, now=self.now)
        self.store.claim("judge", owner="judge", limit=9, lease_s=60, now=self.now)
        votes = [Vote(question=Question.EVALUATION, words=f"\\boxed{{{reward}}}", value=reward)] * 3
        votes += [
            Vote(question=Question.HINT, words=f"\\boxed{{1}} {hint}", value=1, hint=hint) for hint in hints
        ]
        verdict = Verdict(reward=reward, source=Source.VOTES, hints=hints, votes=tuple(votes))
        reason = None if reward or hints else Reason.NO_SIGNAL
        self.hinted += bool(hints)
        flags = [Flag.COMMAND] if hints and self.hinted % 7 == 0 else []
        self.store.judged(
            turn.id,
            verdict,
            rl=bool(reward),
            opd=bool(hints),
            reason=reason,
            owner="judge",
            now=self.now,
            flags=flags,
        )
        if hints:
            self.store.teach(turn, hints[0], now=self.now)
        if reason is None and not flags and self.waiting is not None:
            self.waiting.append(turn.id)

    def _learn(self) -> None:
        assert self.waiting is not None
        turns, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
        self.version += 1
        n = self.version
        noise = Random(n).random
        metrics = {
            "loss": 0.9 * 0.9**n + 0.05 * self.random.random(),
            "rl": 0.1 * 0.9**n + 0.02 * noise(),
            "opd": 0.8 * 0.9**n + 0.04 * noise(),
            "entropy": 0.7 * 0.98**n + 0.02 * noise(),
            "grad_norm": 1.5 + 0.5 * noise(),
            "reference_kl": 0.002 * n + 0.001 * self.random.random(),
            "mismatch_mean": 0.011 + 0.004 * self.random.random(),
            "teacher_gap": 0.6 * 0.93**n + 0.03 * self.random.random(),
            "overlap": min(0.98, 0.7 + 0.02 * n),
            "staleness_mean": self.random.random(),
            "staleness_max": 2.0,
            "mismatch_fresh": 0.001 * noise(),
            "samples": float(BATCH),
            "opd_samples": float(BATCH // 2),
            "seconds_passes": 20 + 5 * noise(),
            "seconds_step": 2 + noise(),
        }
        lost = {"edit": (0, 12), "text": (self.random.randrange(2), 20)}
        effects = tuple(self._effect(turn) for turn in turns)
        answers = self._practise()
        effects += answers
        turns += [each.turn for each in answers]
        suite = SuiteResult(lost=lost, evidence=0.4)
        made = Version(
            number=n, parent=n - 1, origin=Origin.UPDATE, created=self.now, turns=tuple(turns), probe=PROBE,
            metrics=metrics, suite=suite, effects=effects,
        )  # fmt: skip
        self.store.commit_version(made, now=self.now)
        self.store.published(n, now=self.now + 1)
        if n % 6 == 0:
            self._decide(
                EventKind.CONFIRM, f"version {n} is confirmed: since it came, 6 requests in a row ended well"
            )
        if n % 7 == 0:
            self._decide(
                EventKind.HOLD,
                "an update of 8 turns was held back: it would have lost 4 of 12 `edit` that people"
                " had approved (evidence 31.2); its turns are set aside as held_back",
            )

    def _practise(self) -> tuple[Effect, ...]:
        """A few answers for each lesson that is not learned; the gap falls from 30 nats to half of the last
        with each version."""
        effects = []
        for lesson in self.store.lessons():
            if standing(lesson).progress is not Progress.PRACTISING:
                continue
            prompt = self.store.turn(lesson.corrections[-1].turn).sampled_turn
            said = Message(role="assistant", content=KEPT[HINTS.index(lesson.corrections[0].words)])
            first = len(lesson.answers)
            turns = [
                replace(prompt, id=f"01p{lesson.number:03}{first + at:04}", kind=Kind.PRACTICE, message=said)
                for at in range(PRACTISED)
            ]
            self.now += 60
            fresh = [Fresh(each, prompt.id) for each in turns]
            assert self.store.practised(lesson, lesson.words, fresh, now=self.now)
            gap = 30.0 / 2 ** (first / PRACTISED) / len(prompt.sampled.ids)
            effects += [
                Effect(turn=each.id, before=-0.4, after=-0.4, hinted_before=-0.4 - gap) for each in turns
            ]
        return tuple(effects)

    def _effect(self, turn: str) -> Effect:
        """A turn found bad falls, and its tokens are pushed down, some far; a good one rises."""
        record = self.store.turn(turn)
        reward, ids = record.verdict.reward if record.verdict else 0, record.sampled_turn.sampled.ids
        hinted = bool(record.verdict and record.verdict.hints)
        random = Random(turn)
        pushed = (reward * 0.25 + (random.gauss(0, 0.5) if hinted else 0.0) for _ in ids)
        before = -0.4 - 0.4 * random.random()
        return Effect(
            turn=turn,
            before=before,
            after=before + reward * 0.2 * random.random(),
            hinted_before=before - 0.9 if hinted else None,
            advantages=tuple(round(value, 3) for value in pushed),
        )

    def _decide(self, kind: EventKind, words: str) -> None:
        self.store.decided(Event(kind=kind, at=self.now + 2, version=self.version, evidence=0.0, words=words))


def play(store: Store, renderer: Renderer, *, sessions: int, now: float) -> float:
    """Fill a store with `sessions` sessions from `now` on, and return the time of the last event."""
    history = History(store, renderer, Random(0), now)
    history.play(sessions)
    store.set_status("judge", True, "idle", now=history.now)
    store.set_status(
        "learn",
        True,
        "5 of 8 turns wait: the next update starts at 8, or in 12 minutes if 4 wait then",
        now=history.now,
    )
    doing = "practises lesson 1: samples 8 answers; 8 of 32 so far, gap 4.1 nats"
    store.set_status("practice", True, doing, now=history.now)
    store.set_status("publish", True, f"serving version {history.version}", now=history.now)
    store.set_status("housekeeping", True, "the store is within its limits", now=history.now)
    return history.now
