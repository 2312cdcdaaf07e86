"""A trial on a running system: what can be taught, the conversations that teach it, the measurements."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any, TypeVar

from openai import OpenAI

from afterwit.chat_format.render import Renderer
from afterwit.demo.live import LiveSystem
from afterwit.demo.people import MODEL, SIDE
from afterwit.engines.port import Generate, Score, Weights
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.lifecycle import State
from afterwit.progress import difference_interval
from afterwit.trial.people import Person, Said, got_worse, is_bad, words
from afterwit.turn import Conversation, Message, Sampling, ToolCall

AT_ONCE = 16
"""Concurrent conversations, and answers of a measurement."""
TEMPERATURE = 0.7
ROOM = 100
"""Tokens of an answer at most."""
PROBES = 16
"""Questions that find out what the model can be taught."""
Message_ = dict[str, Any]
T = TypeVar("T")
Step = Callable[[str, int, int], None]
"""(name, amount done, total)."""


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
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(new, path)

    @classmethod
    def read(cls, path: Path) -> Played:
        """The inverse of `write`."""
        data = json.loads(path.read_text(encoding="utf-8"))
        made: dict[str, Any] = {**data, "untouched": tuple(data["untouched"])}
        for name, kind in {"lessons": Lesson, "points": Point, "talks": Talk}.items():
            made[name] = [kind(**each) for each in data[name]]
        return cls(**made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A person's agent at the gateway, by the official client."""

    api: OpenAI
    tools: Sequence[Mapping[str, Any]] = ()

    def answer(self, messages: Sequence[Message_], headers: Mapping[str, str], *, room: int = ROOM) -> Said:
        more: dict[str, Any] = {"tools": list(self.tools)} if self.tools else {}
        made = self.api.chat.completions.create(
            model=MODEL,
            messages=list(messages),  # type: ignore[arg-type]  # plain dicts
            max_tokens=room,
            temperature=TEMPERATURE,
            extra_headers=dict(headers),
            **more,
        )
        said = made.choices[0].message
        calls = [call.model_dump(include={"id", "type", "function"}) for call in said.tool_calls or ()]
        return Said(content=said.content or "", calls=tuple(map(ToolCall.from_dict, calls)))

    def answers(
        self, asked: Sequence[Sequence[Message_]], done: Callable[[], None] = lambda: None
    ) -> list[Said]:
        """The answers to single requests, in order, as side traffic that never trains."""

        def one(messages: Sequence[Message_]) -> Said:
            said = self.answer(messages, SIDE)
            done()
            return said

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, asked))

    def talk(self, person: Person, number: int, question: str) -> Talk:
        """One conversation. The second time the person leaves without a complaint."""
        named = {"X-Session-Id": f"person-{person.seed}-{number}"}
        messages: list[Message_] = [{"role": "user", "content": question}]
        first = self.answer(messages, named)
        liked = person.likes(first)
        said = person.reaction(liked, f"{number} first")
        talk = Talk(number=number, question=question, answer=shown(first), liked=liked, reaction=said)
        messages += [*_as_messages(first), {"role": "user", "content": said}]
        second = self.answer(messages, named, room=1 if liked else ROOM)
        if liked:
            return talk
        liked = person.likes(second)
        if liked:
            thanks = person.reaction(True, f"{number} second")
            messages += [*_as_messages(second), {"role": "user", "content": thanks}]
            self.answer(messages, named, room=1)
        return replace(talk, second=shown(second), second_liked=liked)


def shown(said: Said) -> str:
    """An answer as text: calls first."""
    return "\n".join([*(f"{call.name} {call.arguments}" for call in said.calls), said.content]).strip()


def _as_messages(said: Said) -> list[Message_]:
    """The answer as it goes back into the conversation; a call with a result, which templates ask for."""
    message: Message_ = {"role": "assistant", "content": said.content}
    if not said.calls:
        return [message]
    message["tool_calls"] = [call.to_dict() for call in said.calls]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "12 results"} for call in said.calls]
    return [message, *results]


@dataclass(slots=True, kw_only=True)
class Trial:
    """A trial on a running system. What is found goes into `played`; `save` is called after each step."""

    system: LiveSystem
    api: OpenAI
    played: Played
    candidates: Sequence[Person]
    renderer: Renderer
    placement: Placement
    own_words: bool
    """The hints are the person's own words, because the judge writes none."""
    until: float
    """When the trial ends, on the monotonic clock."""
    elapsed: Callable[[], float]
    """Seconds of all runs of this trial so far."""
    save: Callable[[], None]
    step: Step

    def choose(self) -> Person | None:
        """The person whose preference leaves the most to learn; None if the model can be taught none."""
        played = self.played
        if not played.lessons:
            alone: dict[tuple[str, ...], list[Said]] = {}
            for number, person in enumerate(self.candidates, start=1):
                asked = person.measured[:PROBES]
                self.step(f"asking what it can be taught: {person.wants}", number, len(self.candidates))
                client, key = Client(api=self.api, tools=person.tools), (*asked, str(person.tools))
                if key not in alone:
                    alone[key] = client.answers([_question(each) for each in asked])
                told = client.answers(self._hinted(person, asked))
                played.lessons.append(
                    Lesson(
                        preference=person.preference,
                        wants=person.wants,
                        alone=sum(map(person.likes, alone[key])),
                        told=sum(map(person.likes, told)),
                        of=len(asked),
                    )
                )
            best = max(played.lessons, key=lambda lesson: lesson.room)
            played.preference = best.preference if best.teachable else None
            self.save()
        return next((person for person in self.candidates if person.preference == played.preference), None)

    def begin(self, person: Person) -> None:
        """Measure the original model, and what its teacher reaches; nothing if that is known."""
        if self.played.points:
            return
        self.step("measuring what it reaches with the hint in its prompt", 0, 0)
        client, asked = Client(api=self.api, tools=person.tools), person.measured
        self.played.ceiling = sum(map(person.likes, client.answers(self._hinted(person, asked))))
        self.played.texts = self._sampled()
        self.measure(person)

    def measure(self, person: Person) -> Point:
        """Measure the version that is served now."""
        client, asked, done = Client(api=self.api, tools=person.tools), person.measured, 0
        untouched = words()["untouched"]
        whole = len(asked) + len(untouched)

        def one() -> None:
            nonlocal done
            done += 1
            self.step("measuring on held-out questions, without hints", done, whole)

        held_out = client.answers([_question(each) for each in asked], one)
        others = [
            shown(each) for each in Client(api=self.api).answers([_question(each) for each in untouched], one)
        ]
        played = self.played
        if not played.untouched:
            played.untouched = tuple(others)
        worse = map(got_worse, untouched, played.untouched, others)
        point = Point(
            conversations=len(played.talks),
            seconds=round(self.elapsed(), 1),
            version=self.system.version(),
            kept=sum(map(person.likes, held_out)),
            of=len(asked),
            kl=self._moved(),
            worse=sum(worse),
            bad=sum(not each.calls and is_bad(each.content) for each in held_out),
            answers=tuple(map(shown, held_out)),
        )
        played.points.append(point)
        self.save()
        return point

    def converse(self, person: Person, most: int) -> bool:
        """Hold the next conversations, at most `AT_ONCE` and up to `most` in all, and let the model learn.

        Returns whether there was time for that; saved are those that were held.
        """
        first, client = len(self.played.talks), Client(api=self.api, tools=person.tools)
        number, done = min(AT_ONCE, most - first), 0

        def one(at: int, question: str) -> Talk | None:
            nonlocal done
            if time.monotonic() > self.until:
                return None
            talk = client.talk(person, at, question)
            done += 1
            self.step("talking with it", done, number)
            return talk

        with ThreadPoolExecutor(AT_ONCE) as pool:
            held = list(pool.map(one, range(first, first + number), person.questions(first, number)))
        self.played.talks += [talk for talk in held if talk is not None]
        self.save()
        return self._rest() and all(held)

    def _rest(self) -> bool:
        """Wait until every reply is judged, trained and served; whether that happened before the end."""
        batch = self.system.settings.learner.batch
        while time.monotonic() < self.until:
            states, versions = self.system.store(lambda store: (store.counts().states, store.versions()))
            unjudged, judged = states.get(State.ANSWERED, 0), states.get(State.JUDGED, 0)
            newest = max((row.number for row in versions), default=0)
            if not unjudged and judged < batch and self.system.version() >= newest:
                return True
            done = sum(states.values()) - unjudged - judged
            self.step("judging and learning", done, sum(states.values()))
            time.sleep(0.5)
        return False

    def _hinted(self, person: Person, asked: Sequence[str]) -> list[list[Message_]]:
        """The questions with a hint, as the teacher reads them."""
        hints = person.complaints if self.own_words else person.hints
        found = []
        for at, question in enumerate(asked):
            plain = Conversation(messages=(Message(role="user", content=question),))
            hinted = splice(plain, hints[at % len(hints)], self.placement)
            found.append([message.to_dict() for message in hinted.messages])
        return found

    def _sampled(self) -> list[dict[str, Any]]:
        """Answers of the original model at temperature 1, with their log-probs; none if the engine cannot
        score."""
        engine = self.system.runtime.engine
        assert engine is not None
        if not engine.capabilities.scored_ids:
            return []
        prompts = [
            self.renderer.prompt_ids(Conversation(messages=(Message(role="user", content=each),)))
            for each in words()["untouched"]
        ]

        async def sampled(prompt_ids: tuple[int, ...], seed: int) -> list[int]:
            request = Generate(prompt_ids=prompt_ids, sampling=Sampling(max_tokens=ROOM, seed=seed))
            return [id for step in [each async for each in engine.generate(request)] for id in step.ids]

        async def every() -> list[list[int]]:
            return await asyncio.gather(*(sampled(prompt, seed) for seed, prompt in enumerate(prompts)))

        made = self.system.wait(every())
        texts: list[dict[str, Any]] = [
            {"prompt_ids": list(prompt), "ids": ids} for prompt, ids in zip(prompts, made, strict=True) if ids
        ]
        for text, logprob in zip(texts, self._logprobs(texts), strict=True):
            text["logprob"] = logprob
        return texts

    def _logprobs(self, texts: Sequence[Mapping[str, Any]]) -> list[float]:
        """The log-prob of each text under the weights that serve."""
        engine = self.system.runtime.engine
        assert engine is not None
        rows = [
            Score(prompt_ids=tuple(each["prompt_ids"]), response_ids=tuple(each["ids"])) for each in texts
        ]
        return [
            fsum(each.logprobs) for each in self.system.wait(engine.score(rows, top=1, weights=Weights.LIVE))
        ]

    def _moved(self) -> float | None:
        """KL(model as it came || served model), nats a token: an unbiased mean over fixed texts of the first,
        free of the noise of new samples."""
        texts = self.played.texts
        if not texts:
            return None
        tokens = sum(len(each["ids"]) for each in texts)
        lost = zip(texts, self._logprobs(texts), strict=True)
        return fsum(text["logprob"] - now for text, now in lost) / tokens


def _question(text: str) -> list[Message_]:
    return [{"role": "user", "content": text}]


def satisfied_after(talks: Iterable[Talk], row: int = 3) -> int | None:
    """The conversations until the person liked `row` first answers in succession; None: never."""
    liked = 0
    for talk in talks:
        liked = liked + 1 if talk.liked else 0
        if liked == row:
            return talk.number + 1
    return None
