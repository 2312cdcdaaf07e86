"""A client at work: tasks, tool calls, retries, edits; and auxiliary requests."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from random import Random
from typing import Any

from afterwit.turn import Message, ToolCall
from experiments.replay.clients.traits import Traits
from experiments.replay.traffic import Ask, Play
from experiments.replay.words import Words

Answered = Generator[tuple[Ask, ...], tuple[Message, ...], Message]
MOST_ROUNDS = 4


class Client:
    """One session of a kind of client. `structure` decides what happens, `spoken` what is sampled."""

    def __init__(
        self, traits: Traits, structure: Random, spoken: Random, *, key: str, session: str = "main"
    ) -> None:
        self.traits, self.rng, self.spoken = traits, structure, spoken
        self.words = Words(structure, spoken)
        self.key, self.session = key, session
        self.history: list[Message] = []
        self.last: str | None = None
        """The main-line ask whose answer the history ends with; None after a compaction."""
        self.unanswered: str | None = None
        """The ask that the pending messages answer."""
        self.pending: list[Message] = []
        """The messages after the last answer."""
        self.instructions = traits.system
        self.tools = () if traits.calls_as_words else traits.tools
        self._parents: dict[str, str | None] = {}
        self._number = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def named(self, what: str) -> str:
        self._number += 1
        return f"{self.session}/{what}-{self._number}"

    @property
    def system(self) -> list[Message]:
        return [Message(role="system", content=self.instructions)]

    def headers(self) -> dict[str, str]:
        made = {"user-agent": self.traits.agent, **self.traits.headers}
        if self.traits.session_header is not None:
            made[self.traits.session_header] = f"ses_{self.key}"
        return made

    def sent(self) -> list[Message]:
        """The conversation as this client sends it."""
        return [*self.system, *self.traits.echo(self.history, self.rng)]

    def hear(self, message: Message, *, decorated: str | None = None) -> None:
        """Give the agent a message; `decorated` is how the client writes it down."""
        self.pending.append(message)
        self.history.append(message if decorated is None else replace(message, content=decorated))

    def person(self, text: str) -> None:
        stamp = f"[Fri 2026-11-20 23:{self.rng.randrange(10, 60)} UTC] " if self.traits.stamped else ""
        self.hear(Message(role="user", content=text), decorated=stamp + text)

    def main(self, reply: Message, **changes: Any) -> Ask:
        """The next request of the main line."""
        said = {} if self.unanswered is None else {self.unanswered: tuple(self.pending)}
        context = [] if self.traits.context is None else [Message(role="user", content=self.traits.context)]
        fields: dict[str, Any] = {
            "name": self.named("turn"),
            "messages": (*self.sent(), *context),
            "reply": reply,
            "tools": self.tools,
            "streamed": self.traits.streamed,
            "headers": self.headers(),
            "session": self.session,
            "parent": self.last,
            "says": said,
            "dialect": self.traits.dialect,
        }
        return Ask(**fields | changes)

    def beside(self, what: str, messages: list[Message], reply: Message, **changes: Any) -> Ask:
        """A request outside the main line, by default without tools."""
        fields: dict[str, Any] = {
            "name": self.named(what),
            "messages": tuple(messages),
            "reply": reply,
            "streamed": self.traits.streamed,
            "headers": self.headers(),
            "session": self.session,
            "side": True,
            "dialect": self.traits.dialect,
        }
        return Ask(**fields | changes)

    def went_on(self, ask: Ask, answer: Message) -> None:
        """The answer becomes part of the conversation."""
        self._parents[ask.name] = ask.parent
        self.history.append(answer)
        self.last = self.unanswered = ask.name
        self.pending = []

    def asked(self, reply: Message, *companions: Ask) -> Answered:
        """One step of the main line, with what may go wrong; the answer that it goes on from."""
        ask = self.main(reply)
        if self.chance(self.traits.retries):
            yield (replace(ask, arrives=False),)
            ask = replace(self.main(self.drawn(bool(reply.tool_calls))), again=ask.name)
        answer, *_ = yield (ask, *companions)
        if self.last is not None and self.chance(self.traits.regenerates):
            ask = replace(self.main(self.drawn(bool(reply.tool_calls))), again=ask.name)
            (answer,) = yield (ask,)
        self.went_on(ask, answer)
        return answer

    def drawn(self, calls: bool) -> Message:
        """A reply, with calls or without."""
        thought = self.words.thought() if self.rng.random() < 0.3 else None
        if not calls:
            return Message(role="assistant", content=self.words.reply(), reasoning=thought)
        made = tuple(
            ToolCall(id=f"call-{index}", name=self.rng.choice(self.traits.tools), arguments=self._arguments())
            for index in range(self.rng.choice([1, 1, 1, 2, 3]))
        )
        said = self.words.before_a_call()
        if self.traits.calls_as_words:
            made = made[:1]
            written = f"<{made[0].name}>\n{made[0].arguments}\n</{made[0].name}>"
            return Message(role="assistant", content=f"{said or ''}\n{written}".strip())
        return Message(role="assistant", content=said, reasoning=thought, tool_calls=made)

    def _arguments(self) -> str:
        return json.dumps(self.words.arguments())

    def task(self, text: str, *companions: Ask) -> Generator[tuple[Ask, ...], tuple[Message, ...], None]:
        """A person's message, and everything that the agent does until it has answered."""
        before = (list(self.history), self.last, self.unanswered, list(self.pending))
        self.person(text)
        rounds = self.rng.randint(0, MOST_ROUNDS) if self.traits.tools else 0
        for _ in range(rounds):
            answer = yield from self.asked(self.drawn(True), *companions)
            companions = ()
            yield from self.results(answer)
            if self.chance(self.traits.interrupts):
                self.person(self.words.task())
        yield from self.asked(self.drawn(False), *companions)
        if self.chance(self.traits.complains):
            yield from self.complain()
        elif before[1] is not None and self.chance(self.traits.edits):
            yield from self.edit(before)

    def results(self, answer: Message) -> Play:
        """The results of an answer's calls, one of which a sub-agent may fetch."""
        ids = ["words"] if self.traits.calls_as_words else [call.id for call in answer.tool_calls]
        for call in ids:
            said = self.words.result()
            if self.session == "main" and self.chance(self.traits.subagents):
                said = yield from self.delegated()
            if self.traits.results_as_words:
                self.hear(Message(role="user", content=f"Observation:\n{said}"))
            else:
                self.hear(Message(role="tool", tool_call_id=call, content=said))

    def delegated(self) -> Generator[tuple[Ask, ...], tuple[Message, ...], str]:
        """Run a sub-agent to its report: a session of its own, with fewer tools and another system text."""
        traits = replace(
            self.traits,
            system="You are a sub-agent. Report what you found.",
            tools=self.traits.tools[:3],
            retries=0.0,
            edits=0.0,
            complains=0.0,
            interrupts=0.0,
        )
        name = self.named("sub")
        child = Client(traits, self.rng, self.spoken, key=f"{self.key}-{name}", session=name)
        yield from child.task(f"{self.words.task()} Report back in {self.rng.randrange(2, 9)} lines.")
        return child.history[-1].content or ""

    def complain(self) -> Play:
        """Delete the last reply; the client complains about it."""
        deleted = self.last
        assert deleted is not None
        self.history.pop()
        self.hear(Message(role="user", content=f"Tool call error: none was made. {self.rng.randrange(99)}"))
        ask = self.main(self.drawn(False), parent=self._parents[deleted])
        (answer,) = yield (ask,)
        self.went_on(ask, answer)

    def edit(self, before: tuple[list[Message], str | None, str | None, list[Message]]) -> Play:
        """Rewrite the person's last message; the conversation goes on from there."""
        left = self.last
        self.history, self.last, self.unanswered, self.pending = before
        self.person(self.words.task() + " (edited)")
        ask = self.main(self.drawn(False), again=left)
        (answer,) = yield (ask,)
        self.went_on(ask, answer)
