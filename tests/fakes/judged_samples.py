"""Judged turns for a learner: prompts that render, responses of random ids, any verdict."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import Any

from afterwit.chat_format.render import Renderer
from afterwit.store import Store
from afterwit.turn import Basis, Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from afterwit.verdict import JudgedTurn, NextState, Source, Verdict

HINTS = ("Read the file first.", "Write three friendly steps, then stop.")
VOCABULARY = 400
WORDS = ("read", "write", "edit", "please", "file", "answer", "three", "thanks")


def a_sample(
    renderer: Renderer,
    number: int = 0,
    *,
    tokens: int = 6,
    reward: int = -1,
    hints: tuple[str, ...] = HINTS,
    version: int = 0,
    tau: float = 1.0,
    **sampled: Any,
) -> JudgedTurn:
    """Turn `number`, the same for the same arguments. `sampled` overrides fields of what was sampled."""
    random = Random(f"{number} {tokens}")
    said = " ".join(random.choice(("read", "write", "edit", "please")) for _ in range(2 + number % 7))
    conversation = Conversation(messages=(Message(role="user", content=f"{said} file {number}"),))
    fields: dict[str, Any] = {
        "ids": tuple(random.randrange(VOCABULARY) for _ in range(tokens)),
        "logprobs": tuple(-random.random() * 3 for _ in range(tokens)),
        "versions": (version,) * tokens,
        "forced": (False,) * tokens,
        "basis": Basis.PROCESSED,
    }
    turn = Turn(
        id=f"turn{number:04d}",
        scope="test",
        session=f"session{number}",
        parent=None,
        kind=Kind.MAIN,
        created=1000.0 + number,
        model="tiny",
        conversation=conversation,
        prompt_ids=renderer.prompt_ids(conversation),
        sampling=Sampling(max_tokens=64, temperature=tau),
        sampled=Sampled(**(fields | sampled)),
        message=Message(role="assistant", content="done"),
        finish=Finish.STOP,
    )
    verdict = Verdict(reward=reward, source=Source.VOTES, hints=hints)
    return JudgedTurn(turn=turn, verdict=verdict, rl=reward != 0, opd=bool(hints))


def session(renderer: Renderer, name: str, turns: int, *, words: int = 8) -> list[JudgedTurn]:
    """A session that only grows: each response is in the next prompt as it was sampled; no hints."""
    random, messages, samples = Random(name), list[Message](), list[JudgedTurn]()
    for number in range(turns):
        said = [" ".join(random.choice(WORDS) for _ in range(words)) for _ in range(2)]
        messages.append(Message(role="user", content=said[0]))
        prompt = renderer.prompt_ids(Conversation(messages=tuple(messages)))
        message = Message(role="assistant", content=said[1])
        whole = renderer.prompt_ids(Conversation(messages=(*messages, message, messages[0])))
        assert whole[: len(prompt)] == prompt
        taken = a_sample(
            renderer, number, reward=(-1) ** number, hints=(), ids=whole[len(prompt) :][:words], tokens=words
        )
        turn = replace(
            taken.turn,
            id=f"{name}{number}",
            session=name,
            parent=f"{name}{number - 1}" if number else None,
            conversation=Conversation(messages=tuple(messages)),
            prompt_ids=prompt,
            message=message,
        )
        samples.append(replace(taken, turn=turn))
        messages.append(message)
    return samples


def store_judged(
    store: Store, samples: list[JudgedTurn], *, now: float = 2000.0, answered_by: str | None = None
) -> None:
    """Store the samples as judged turns, which the turn `answered_by` answered."""
    for sample in samples:
        store.add_turn(
            sample.turn,
            prompt_hash=sha256(repr(sample.turn.prompt_ids).encode()).digest(),
            full_hash=sample.turn.id.encode().ljust(16, b"f"),
            depth=1,
            full_depth=2,
            delivered=True,
            reason=None,
            now=now,
        )
        store.answer(sample.turn.id, NEXT_STATE.messages, answered_by=answered_by, now=now)
        (record,) = store.claim("judge", owner="judge", limit=1, lease_s=60, now=now)
        store.judged(
            record.turn.id, sample.verdict, rl=sample.rl, opd=sample.opd, reason=None, now=now, owner="judge"
        )


NEXT_STATE = NextState(messages=(Message(role="user", content="That is wrong."),))
