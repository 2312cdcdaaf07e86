"""A trial on a running system: what can be taught, the conversations that teach it, the measurements."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, cycle
from math import fsum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from afterwit.chat_format.render import Renderer
from afterwit.demo.live import LiveSystem
from afterwit.demo.people import AT_ONCE, Ask, Script, Setting, at_once, calls, play, written
from afterwit.demo.world import Message
from afterwit.engines.port import Generate, Score, Weights
from afterwit.judging.ability import Progress, silent
from afterwit.judging.hinted_prompts import splice
from afterwit.progress import difference_interval
from afterwit.trial.people import ROOM, SETTING, Person, Said, got_worse, is_bad, words
from afterwit.turn import Conversation, Sampling
from afterwit.turn import Message as TurnMessage

PROBES = 16
"""Questions that find out what the model can be taught."""
REST_S = 0.5
"""Seconds between two looks whether the learner rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A preference, and how often the model keeps it by itself and with the instruction in its prompt."""

    preference: str
    wants: str
    alone: int
    told: int
    of: int

    @property
    def room(self) -> float:
        """The share that can be learned."""
        return (self.told - self.alone) / self.of

    @property
    def teachable(self) -> bool:
        """Whether the hint makes a difference that is not chance: without one there is nothing to distil."""
        return difference_interval((self.alone, self.of), (self.told, self.of)).low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement."""

    conversations: int
    seconds: float
    version: int
    kept: int
    """Held-out questions answered as the person likes it."""
    of: int
    kl: float | None
    """KL from the original model, nats a token, over its own answers to requests that no one taught; None:
    the engine cannot score."""
    worse: int
    """Answers to these requests that are worse than at first."""
    bad: int
    """Held-out answers that are empty or go round in circles."""
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """One conversation: the question, the first answer, the person's reply, and the second answer if they
    complained."""

    number: int
    question: str
    answer: str
    liked: bool
    reaction: str
    second: str | None = None
    second_liked: bool | None = None


@dataclass(slots=True, kw_only=True)
class Played:
    """All that a trial has found so far, as it is kept in a file between two runs."""

    identity: dict[str, Any]
    """Model, seed, judge and settings: a file of others is not continued."""
    lessons: list[Lesson] = field(default_factory=list)
    preference: str | None = None
    ceiling: int | None = None
    """Held-out questions that the hinted model answers as the person likes it: the teacher's share."""
    texts: list[dict[str, Any]] = field(default_factory=list)
    """Answers of the original model: prompt ids, ids and log-probs."""
    untouched: tuple[str, ...] = ()
    points: list[Point] = field(default_factory=list)
    talks: list[Talk] = field(default_factory=list)
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Replace the file at once: a crash leaves the old one or the new one."""
        new = path.with_suffix(".new")
        new.write_bytes(TypeAdapter(Played).dump_json(self))
        os.replace(new, path)

    @classmethod
    def read(cls, path: Path) -> Played:
        """The inverse of `write`."""
        return TypeAdapter(Played).validate_json(path.read_bytes())


def conversation(person: Person, number: int, question: str) -> Script[Talk]:
    """One conversation. The second time the person leaves without a complaint."""
    messages: list[Message] = [{"role": "user", "content": question}]

    def heard(answer: Message, liked: bool, turn: str) -> str:
        """The person's reply, which is the next message; a call has a text and a result, as templates ask."""
        said = person.reaction(liked, f"{number} {turn}")
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "12 results"} for call in calls(answer)
        ]
        answer = answer | {"content": answer["content"] or ""}
        messages.extend([answer, *results, {"role": "user", "content": said}])
        return said

    first = (yield Ask(messages=messages)).message
    liked = person.likes(Said.of(first))
    said = heard(first, liked, "first")
    talk = Talk(number=number, question=question, answer=written(first), liked=liked, reaction=said)
    second = (yield Ask(messages=messages, max_tokens=1 if liked else None)).message
    if liked:
        return talk
    if liked := person.likes(Said.of(second)):
        heard(second, liked, "second")
        yield Ask(messages=messages, max_tokens=1)
    return replace(talk, second=written(second), second_liked=liked)


@dataclass(slots=True, kw_only=True)
class Trial:
    """A trial on a running system. All that is found goes into `played`, and after each step into a file."""

    system: LiveSystem
    played: Played
    candidates: Sequence[Person]
    renderer: Renderer
    own_words: bool
    """The hints are the person's own words, because the judge writes none."""
    until: float
    """When it ends, on the monotonic clock."""
    began: float = field(default_factory=time.monotonic)
    path: Path | None = None
    """The file of what is found; None: it is kept in memory."""
    step: Progress = silent

    def choose(self) -> Person | None:
        """The person whose preference leaves the most to learn; None if the model can be taught none."""
        played = self.played
        if not played.lessons:
            alone: dict[tuple[str, ...], list[Message]] = {}
            for number, person in enumerate(self.candidates, start=1):
                asked = person.measured[:PROBES]
                self.step(f"asking what it can be taught: {person.wants}", number, len(self.candidates))
                if (key := (*asked, str(person.setting))) not in alone:
                    alone[key] = self.answers(map(prompt_of, asked), person.setting)
                told = self.answers(self._hinted(person, asked), person.setting)
                lesson = Lesson(
                    preference=person.preference,
                    wants=person.wants,
                    alone=person.liked(alone[key]),
                    told=person.liked(told),
                    of=len(asked),
                )
                played.lessons.append(lesson)
            best = max(played.lessons, key=lambda lesson: lesson.room)
            played.preference = best.preference if best.teachable else None
            self.save()
        return next((person for person in self.candidates if person.preference == played.preference), None)

    def rounds(self, person: Person, most: int) -> Iterator[Point]:
        """Every measurement, of the original model first, then after conversations, up to `most` in all."""
        self.begin(person)
        yield self.played.points[-1]
        while len(self.played.talks) < most and (began := time.monotonic()) < self.until:
            on = self.converse(person, most)
            yield self.measure(person)
            now = time.monotonic()
            if not on or self.until - now < now - began:  # the next ones would not be done in time
                return

    def begin(self, person: Person) -> None:
        """Measure the original model, and what its teacher reaches; nothing if that is known."""
        if self.played.points:
            return
        self.step("measuring what it reaches with the hint in its prompt", 0, 0)
        hinted = self.answers(self._hinted(person, person.measured), person.setting)
        self.played.ceiling = person.liked(hinted)
        self.played.texts = self._sampled()
        self.measure(person)

    def measure(self, person: Person) -> Point:
        """Measure the version that is served now."""
        asked, untouched, played = person.measured, words()["untouched"], self.played
        held_out = self.answers(map(prompt_of, asked), person.setting, "held-out questions, without hints")
        others = self.answers(map(prompt_of, untouched), SETTING, "other requests, which no one teaches")
        after = tuple(map(written, others))
        played.untouched = played.untouched or after
        point = Point(
            conversations=len(played.talks),
            seconds=round(self._seconds(), 1),
            version=self.system.version(),
            kept=person.liked(held_out),
            of=len(asked),
            kl=self._moved(),
            worse=sum(map(got_worse, untouched, played.untouched, after)),
            bad=sum(not calls(each) and is_bad(each["content"] or "") for each in held_out),
            answers=tuple(map(written, held_out)),
        )
        played.points.append(point)
        self.save()
        return point

    def converse(self, person: Person, most: int) -> bool:
        """Hold the next conversations, at most `AT_ONCE` and up to `most` in all, and let the model learn.

        Returns whether there was time for that; saved are those that were held.
        """
        first = len(self.played.talks)
        number = min(AT_ONCE, most - first)

        def one(at: int) -> Talk | None:
            if time.monotonic() > self.until:
                return None
            answer = self.system.agent(person.setting, f"person-{person.seed}-{at}")
            (question,) = person.questions(at, 1)
            return play(answer, conversation(person, at, question))

        held = at_once(one, range(first, first + number), partial(self.step, "talking with it"))
        self.played.talks += [talk for talk in held if talk is not None]
        self.save()
        return self.system.wait_until_learned(self.until, self.step, every_s=REST_S) and all(held)

    def save(self) -> None:
        self.played.seconds = self._seconds()
        if self.path is not None:
            self.played.write(self.path)

    def _seconds(self) -> float:
        return time.monotonic() - self.began

    def answers(
        self,
        prompts: Iterable[Conversation],
        setting: Setting,
        measured: str = "",
        *,
        session: str | None = None,
    ) -> list[Message]:
        """The answers to single requests, in order. `measured` names them in the display.

        With `session` each request begins a conversation, whose name begins with this; without it they are
        side traffic, which teaches nothing and reads no lesson.
        """
        asks = [Ask(messages=[each.to_dict() for each in prompt.messages]) for prompt in prompts]
        done = partial(self.step, f"measuring on {measured}") if measured else lambda *_: None

        def one(numbered: tuple[int, Ask]) -> Message:
            at, ask = numbered
            name = None if session is None else f"{session}-{at}"
            return self.system.agent(setting, name)(ask).message

        return at_once(one, list(enumerate(asks)), done)

    def _hinted(self, person: Person, asked: Sequence[str]) -> Iterator[Conversation]:
        """The questions with a hint, as the teacher reads them."""
        hints = cycle(person.complaints if self.own_words else person.hints)
        placement = self.system.settings.judge.placement
        return (splice(prompt_of(each), hint, placement) for each, hint in zip(asked, hints, strict=False))

    def _sampled(self) -> list[dict[str, Any]]:
        """Answers of the original model at temperature 1, with their log-probs; none if the engine cannot
        score."""
        engine = self.system.engine
        if not engine.capabilities.scored_ids:
            return []

        async def sampled(asked: str, seed: int) -> dict[str, Any]:
            prompt_ids = self.renderer.prompt_ids(prompt_of(asked))
            request = Generate(prompt_ids=prompt_ids, sampling=Sampling(max_tokens=ROOM, seed=seed))
            ids = [id async for step in engine.generate(request) for id in step.ids]
            return {"prompt_ids": list(prompt_ids), "ids": ids}

        async def every() -> list[dict[str, Any]]:
            return await asyncio.gather(*map(sampled, words()["untouched"], count()))

        texts = [each for each in self.system.wait(every()) if each["ids"]]
        logprobs = self._logprobs(texts)
        return [text | {"logprob": logprob} for text, logprob in zip(texts, logprobs, strict=True)]

    def _logprobs(self, texts: Sequence[Mapping[str, Any]]) -> list[float]:
        """The log-prob of each text under the weights that serve."""
        rows = [
            Score(prompt_ids=tuple(each["prompt_ids"]), response_ids=tuple(each["ids"])) for each in texts
        ]
        scored = self.system.wait(self.system.engine.score(rows, top=1, weights=Weights.LIVE))
        return [fsum(each.logprobs) for each in scored]

    def _moved(self) -> float | None:
        """KL(model as it came || served model), nats a token: an unbiased mean over fixed texts of the first,
        free of the noise of new samples."""
        texts = self.played.texts
        if not texts:
            return None
        tokens = sum(len(each["ids"]) for each in texts)
        lost = zip(texts, self._logprobs(texts), strict=True)
        return fsum(text["logprob"] - now for text, now in lost) / tokens


def prompt_of(question: str) -> Conversation:
    return Conversation(messages=(TurnMessage(role="user", content=question),))


def satisfied_after(talks: Iterable[Talk], row: int = 3) -> int | None:
    """The conversations until the person liked `row` first answers in succession; None: never."""
    liked = 0
    for talk in talks:
        liked = liked + 1 if talk.liked else 0
        if liked == row:
            return talk.number + 1
    return None
