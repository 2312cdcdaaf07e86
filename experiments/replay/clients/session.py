"""A whole session: tasks, with titles, reviews, heartbeats and compactions between them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from afterwit.turn import Message
from experiments.replay.clients.client import Client
from experiments.replay.clients.traits import Kept, Title, Traits
from experiments.replay.traffic import Ask, Play

MOST_TASKS = 5
LONGEST_RESULT = 300
"""Characters of a tool's result that a conversation written as text keeps."""
HEARTBEAT = (
    "Read HEARTBEAT.md if it exists (workspace context). If nothing needs attention, reply HEARTBEAT_OK."
)


def session(traits: Traits, seed: int, *, spoken: int | None = None, key: str | None = None) -> Play:
    """A session of random structure. Another `spoken` gives a twin: the same, but other answers."""
    client = Client(
        traits,
        Random(f"{traits.name}/{seed}"),
        Random(f"{traits.name}/{seed}/{spoken}"),
        key=key or f"{seed}-{spoken}",
    )
    if traits.opening is not None:
        client.history.append(Message(role="user", content=traits.opening))
    first = client.words.opening()
    title = traits.title
    if title is Title.BEFORE:
        yield (_title(client, first),)
    companions = (_title(client, first),) if title is Title.BESIDE else ()
    yield from client.task(first, *companions)
    if title is Title.AFTER:
        yield (_title(client, first),)
    for _ in range(client.rng.randrange(MOST_TASKS)):
        yield from _between(client)
        if traits.switches and client.chance(traits.switches):
            client.tools = traits.tools[1:] if client.tools == traits.tools else traits.tools
            client.instructions = f"{traits.system} You have {len(client.tools)} tools in this mode."
        yield from client.task(client.words.task())


def _between(client: Client) -> Play:
    """Requests that may come while the person thinks."""
    traits = client.traits
    if client.chance(traits.reviews):
        yield from _review(client)
    if client.chance(traits.heartbeats):
        beat = Message(role="user", content=HEARTBEAT)
        answer = Message(role="assistant", content="HEARTBEAT_OK")
        yield (client.beside("heartbeat", [*client.sent(), beat], answer, tools=client.tools),)
    if traits.kept is not None and client.chance(traits.compacts):
        yield from _compaction(client, traits.kept)


def _title(client: Client, first: str) -> Ask:
    words = client.traits.words
    system = [] if words.title_system is None else [Message(role="system", content=words.title_system)]
    asked = words.title.replace("{first}", first).replace("{all}", _written(client.history))
    reply = Message(role="assistant", content=client.words.title())
    if client.traits.title_behind:
        return client.beside("title", [*client.sent(), Message(role="user", content=asked)], reply)
    return client.beside("title", [*system, Message(role="user", content=asked)], reply)


def _review(client: Client) -> Play:
    """A review after the conversation, with all its tools: one step or two."""
    asked = Message(role="user", content=client.traits.words.review)
    messages, tools = [*client.sent(), asked], client.tools if client.traits.review_tools else ()
    if tools and client.chance(0.5):
        (answer,) = yield (client.beside("review", messages, client.drawn(True), tools=tools),)
        results = [
            Message(role="tool", tool_call_id=call.id, content="Only memory tools are allowed.")
            for call in answer.tool_calls
        ]
        messages = [*messages, answer, *results]
    done = Message(role="assistant", content="Nothing to save.")
    yield (client.beside("review", messages, done, tools=tools),)


def _compaction(client: Client, kept: Kept) -> Play:
    words, history = client.traits.words, list(client.history)
    summary = client.words.summary()
    if not client.traits.summary_elsewhere:
        yield (_summary(client, summary),)
    handoff = Message(role="user", content=words.handoff.replace("{summary}", summary))
    last_user = max(at for at, message in enumerate(history) if message.role == "user")
    match kept:
        case Kept.INSTRUCTED:
            client.instructions = f"{client.traits.system}\n{handoff.content}"
            client.history = history[last_user:]
        case Kept.NOTHING:
            client.history = [handoff]
        case Kept.SUFFIX:
            client.history = [handoff, *history[last_user:]]
        case Kept.USERS:
            client.history = [*(message for message in history if message.role == "user"), handoff]
        case Kept.ENDS:
            head = _head(history, last_user)
            client.history = [*head, handoff, *history[last_user:]]
    if kept in (Kept.NOTHING, Kept.USERS):
        client.last = None


def _head(history: Sequence[Message], before: int) -> list[Message]:
    """The first messages, up to the results of the first calls or to the first reply."""
    head = list(history[:before])
    spoken = next((at for at, message in enumerate(head) if message.role == "assistant"), len(head))
    after = next((at for at in range(spoken + 1, len(head)) if head[at].role != "tool"), len(head))
    return head[:after]


def _summary(client: Client, summary: str) -> Ask:
    """The request of a summary: after the conversation, or with the conversation inside one message."""
    traits, reply = client.traits, Message(role="assistant", content=summary)
    if traits.summary_behind:
        asked = Message(role="user", content=traits.words.summary)
        tools = client.tools if traits.summary_tools else ()
        return client.beside("summary", [*client.sent(), asked], reply, tools=tools)
    system = traits.words.summary_system
    asked = Message(role="user", content=traits.words.summary.replace("{all}", _written(client.history)))
    return client.beside(
        "summary", [*([] if system is None else [Message(role="system", content=system)]), asked], reply
    )


def _written(history: Sequence[Message]) -> str:
    """A conversation as text."""
    lines = []
    for message in history:
        said = (message.content or "")[: LONGEST_RESULT if message.role == "tool" else None]
        lines += [f"[{message.role.capitalize()}]: {said}"] if said else []
        lines += [f"[Assistant tool calls]: {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n\n".join(lines)
