"""Turns as other programs' training data: one function for each format makes rows of JSON lines. Pure.

trl             samples for TRL: KTO, self-distillation, or a loop of one's own over the sampled ids
verl            samples under the names of verl's batches, unpadded
openpipe        conversations in OpenAI's chat fine-tuning format with OpenPipe's fields
sft, dpo        conversations to imitate, and pairs to prefer
atropos         scored groups of turns with one prompt, without teacher rows, which need the model
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar

import orjson

from afterwit.exporting.examples import (
    Demonstration,
    Example,
    Examples,
    LeftOut,
    SampledExample,
    demonstrations,
    sampled,
)
from afterwit.text import counted, one_line
from afterwit.turn import Message, RecordedTurn, Turn

Row = Mapping[str, Any]
Rows = Callable[[Iterable[Example]], Iterator[Row | LeftOut]]
"""Examples, which may be iterated twice, to rows, and to the turns that were left out."""

Found = TypeVar("Found", SampledExample, Demonstration)

TEST_OF = 10
"""One session in this number is held out: its lines have the split TEST."""

NOTHING_WORSE = "no_worse_response"
"""The reason of a good turn to whose prompt no bad response is known."""

NOT_TRAINED = -100
"""The mask of a position that does not train; elsewhere it is the id."""

PROMPT_LOGPROB = 1.0
"""The placeholder of Atropos for a missing log-prob: no probability has this logarithm."""

WITH_IDS = frozenset({"trl", "verl", "atropos"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export."""

    rows: int
    left_out: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.left_out.most_common())
        left = f"; {self.left_out.total()} turns left out: {reasons}" if reasons else ""
        return f"{counted(self.rows, 'row')} written{left}"


def write(
    examples: Examples, format: str, out: BinaryIO, wrote: Callable[[int], object] = lambda rows: None
) -> Exported:
    """Write the examples as JSON lines of a format; `wrote` gets the rows so far."""
    rows, left_out = 0, Counter[str]()
    for row in FORMATS[format](examples):
        if isinstance(row, LeftOut):
            left_out[row.reason] += 1
        else:
            out.write(one_line(orjson.dumps(examples.redaction.redacted_json(row))) + b"\n")
            rows += 1
            wrote(rows)
    return Exported(rows=rows, left_out=left_out)


def _rows(
    find: Callable[[Iterable[Example]], Iterator[Found | LeftOut]], row: Callable[[Found], Row | LeftOut]
) -> Rows:
    """A format with a row for each sample or demonstration."""
    return lambda examples: (one if isinstance(one, LeftOut) else row(one) for one in find(examples))


def _trl(found: SampledExample) -> Row:
    """`prompt`, `completion` and `label` are for TRL's own trainers; the other fields are as sampled."""
    example, turn, verdict = found
    return {
        "prompt": _messages(turn.conversation.messages),
        "completion": _messages([turn.message]),
        **_template(turn),
        "label": None if verdict.reward == 0 else verdict.reward > 0,
        "privileged_context": example.hint,
        "prompt_ids": list(turn.prompt_ids),
        "completion_ids": list(turn.sampled.ids),
        "env_mask": _mask(turn),
        "logprobs": list(turn.sampled.logprobs),
        "logprobs_basis": turn.sampled.basis.value,
        "temperature": turn.sampling.temperature,
        "reward": float(verdict.reward),
        "advantage": example.advantage,
        "hints": list(verdict.hints),
        "rl": example.rl,
        "opd": example.opd,
        "versions": list(turn.sampled.versions),
        "kind": turn.kind.value,
        "group": example.prompt_key,
        "turn": turn.id,
        "session": turn.session,
    }


def _verl(found: SampledExample) -> Row:
    example, turn, verdict = found
    mask = _mask(turn)
    return {
        "data_source": "afterwit",
        "prompt": _messages(turn.conversation.messages),
        "ability": "agent",
        "reward_model": {"style": "recorded", "ground_truth": str(verdict.reward)},
        "extra_info": {
            "turn": turn.id,
            "session": turn.session,
            "kind": turn.kind.value,
            **_template(turn),
            "hints": list(verdict.hints),
            "temperature": turn.sampling.temperature,
            "logprobs_basis": turn.sampled.basis.value,
            "rl": example.rl,
            "opd": example.opd,
        },
        "uid": example.prompt_key,
        "prompts": list(turn.prompt_ids),
        "responses": list(turn.sampled.ids),
        "response_mask": mask,
        "rollout_log_probs": list(turn.sampled.logprobs),
        "token_level_scores": [0.0] * (len(mask) - 1) + [float(verdict.reward)],
        "advantages": [example.advantage * trained for trained in mask],
        "versions": list(turn.sampled.versions),
    }


def _openpipe(found: Demonstration) -> Row:
    turn, (response_turn, response) = found.example.turn, found.good
    tools = [dict(tool) for tool in turn.conversation.tools]
    digest = hashlib.sha256(turn.session.encode()).digest()
    facts = {
        "turn": turn.id,
        "session": turn.session,
        "kind": found.kind,
        "response_turn": response_turn,
        "hint": found.example.hint,
    }
    before = [
        {**message, "weight": 0} if message["role"] == "assistant" else message
        for message in _messages(turn.conversation.messages)
    ]
    return {
        "messages": [*before, {**response.to_dict(), "weight": 1}],
        **({"tools": tools} if tools else {}),
        **({} if found.bad is None else {"rejected_message": found.bad[1].to_dict()}),
        # by session, so that no conversation is on both sides; the same in every export
        "split": "TEST" if int.from_bytes(digest[:4]) % TEST_OF == 0 else "TRAIN",
        "metadata": {name: value for name, value in facts.items() if value is not None},
    }


def _sft(found: Demonstration) -> Row:
    turn, (response_turn, response) = found.example.turn, found.good
    return {
        "prompt": _messages(turn.conversation.messages),
        "completion": _messages([response]),
        **_circumstances(found),
        "turn": turn.id,
        "completion_turn": response_turn,
    }


def _dpo(found: Demonstration) -> Row | LeftOut:
    if found.bad is None:
        return LeftOut(turn=found.example.turn.id, reason=NOTHING_WORSE)
    (chosen_turn, chosen), (rejected_turn, rejected) = found.good, found.bad
    return {
        "prompt": _messages(found.example.turn.conversation.messages),
        "chosen": _messages([chosen]),
        "rejected": _messages([rejected]),
        **_circumstances(found),
        "chosen_turn": chosen_turn,
        "rejected_turn": rejected_turn,
    }


def _circumstances(found: Demonstration) -> dict[str, Any]:
    turn, hinted = found.example.turn, found.example.hinted
    return {
        **_template(turn),
        "kind": found.kind,
        "hint": found.example.hint,
        "hinted_prompt": _messages(hinted) if hinted else None,
        "sampled": _messages([turn.message]),
        "session": turn.session,
    }


def _atropos(examples: Iterable[Example]) -> Iterator[Row | LeftOut]:
    """One row for each prompt, when its last sample was read. The examples are iterated twice."""
    known = (one for one in sampled(examples) if not isinstance(one, LeftOut))
    last = {example.prompt_key: turn.id for example, turn, _ in known}
    waiting = defaultdict[str, list[SampledExample]](list)
    for found in sampled(examples):
        if isinstance(found, LeftOut):
            yield found
            continue
        key = found[0].prompt_key
        waiting[key].append(found)
        if last.get(key) == found[1].id:
            yield _group(key, waiting.pop(key))
    for key, group in waiting.items():  # recorded since they were first iterated
        yield _group(key, group)


def _group(key: str, group: Sequence[SampledExample]) -> Row:
    def masks(turn: Turn) -> list[int]:
        own = zip(turn.sampled.ids, turn.sampled.forced, strict=True)
        trained = [NOT_TRAINED if forced else token for token, forced in own]
        return [NOT_TRAINED] * len(turn.prompt_ids) + trained

    turns = [turn for _, turn, _ in group]
    return {
        "tokens": [[*turn.prompt_ids, *turn.sampled.ids] for turn in turns],
        "masks": [masks(turn) for turn in turns],
        "scores": [float(verdict.reward) for _, _, verdict in group],
        "inference_logprobs": [
            [PROMPT_LOGPROB] * len(turn.prompt_ids) + list(turn.sampled.logprobs) for turn in turns
        ],
        "messages": [_messages([*turn.conversation.messages, turn.message]) for turn in turns],
        "overrides": [
            {
                "turn": turn.id,
                "session": turn.session,
                "kind": turn.kind.value,
                "hints": list(verdict.hints),
                "versions": list(turn.sampled.versions),
                "temperature": turn.sampling.temperature,
                "logprobs_basis": turn.sampled.basis.value,
            }
            for _, turn, verdict in group
        ],
        "group_overrides": {"group": key},
    }


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


def _template(turn: RecordedTurn) -> dict[str, str | None]:
    """The chat template's other variables, as JSON texts: schemas differ from row to row."""
    said = turn.conversation
    return {
        "tools": orjson.dumps([dict(tool) for tool in said.tools]).decode() if said.tools else None,
        "template_args": orjson.dumps(dict(said.template_args)).decode() if said.template_args else None,
    }


def _mask(turn: Turn) -> list[int]:
    """1 for each sampled token, 0 for each that a grammar or the caller forced."""
    return [int(not forced) for forced in turn.sampled.forced]


FORMATS: Mapping[str, Rows] = {
    "trl": _rows(sampled, _trl),
    "verl": _rows(sampled, _verl),
    "openpipe": _rows(demonstrations, _openpipe),
    "sft": _rows(demonstrations, _sft),
    "dpo": _rows(demonstrations, _dpo),
    "atropos": _atropos,
}
