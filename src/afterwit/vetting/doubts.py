"""Doubts about a verdict: a hint with words that no person used, votes that contradict other sources. Pure.

A hint becomes weights, so its orders are obeyed in every later conversation. A person may order anything in
their own words; orders that only a tool's result or the judge brought up are flagged. Orders for other people
or against the model's instructions are flagged whoever gave them. Reading a hint takes linear time.

A source is a key. One source that rewards harm and punishes what is right can turn a model, so a verdict of
one source against several waits for a person. The first source to judge a kind of call is not checked:
there is nothing to compare it with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from afterwit.judging.questions import JudgeView, view_of
from afterwit.turn import Message, RecordedTurn, Turn
from afterwit.verdict import Feedback, Flag, NextState
from afterwit.vetting.own_words import taught

_LINK = re.compile(
    r"\b(?:https?|ftp|wss?|data|javascript):[^\s\"'<>]{2,2000}|\bwww\.[^\s\"'<>]{3,2000}"
    r"|[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{2,64}"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}\b",
    re.IGNORECASE,
)
"""Addresses: of pages, of people, of machines."""
_COMMAND = re.compile(
    r"\b(?:curl|wget|sudo|chmod|chown|eval|nc|ncat|ssh|scp|mkfs|crontab|powershell|iwr|base64 -d"
    r"|rm -\w{0,8}[rf]\w{0,8}|(?:pip3?|npm|npx|gem|cargo|apt|apt-get|brew) (?:install|i|exec|x)"
    r"|(?:ba|z)?sh -c|python3? -c)\b"
    r"|\|\s{0,4}(?:ba|z)?sh\b|&&|\$\(|>\s{0,4}/(?:etc|dev)/",
    re.IGNORECASE,
)
"""Programs that fetch, install, delete or reach other machines, and the shell's joints."""
_STANDING = re.compile(
    r"\b(?:all|any|every|each|other|future|later|new)\s(?:future\s|other\s|later\s)?"
    r"(?:conversations?|sessions?|chats?|users?|customers?|clients?|people)\b"
    r"|\b(?:no matter who|regardless of who|whoever asks)\b"
    r"|\b(?:ignore|disregard|forget|override|bypass)\s(?:all\s|any\s|the\s|your\s|these\s|those\s){0,3}"
    r"(?:previous|earlier|prior|above|system|safety|original|other)\b"
    r"|\bsystem prompt\b|\b(?:do not|don't|never)\s(?:tell|mention|reveal|show|inform)\s(?:\w+\s){0,2}"
    r"(?:the\s)?(?:users?|person|owner|customer|anyone|anybody|them|him|her)\b",
    re.IGNORECASE,
)
"""Orders beyond the turn: for other people and conversations, or against earlier instructions."""
_FOREVER = re.compile(r"\b(?:from now on|forever|permanently)\b", re.IGNORECASE)
"""Orders without an end, which a person may give."""
_NAMED = re.compile(r"(?<![\w/.])(?:~|\.{1,2})?(?:/[\w.+-]{1,80}){2,12}|\b[A-Za-z_][\w.]{0,80}\(")
"""Names that can be looked up: paths of several parts, and calls."""
PLANTED = frozenset({Flag.LINK, Flag.COMMAND, Flag.STANDING_ORDER})
"""Flags of hints that a tool's words may have planted."""


def tools_alone(view: JudgeView) -> bool:
    """Whether only tools spoke after the response."""
    return bool(view.next_state) and all(message.role == "tool" for message in view.next_state)


def hint_flags(hints: Sequence[str], view: JudgeView) -> tuple[Flag, ...]:
    """The flags of a turn's hints, in the order of `Flag`; none without a hint."""
    if not hints:
        return ()
    person, others = [view.request], [str(tool) for tool in view.tools]
    for message in (*view.context, view.response, *view.next_state):
        said = others if message.role in ("assistant", "tool") else person
        said.append(message.content or "")
        said.extend(f"{call.name} {call.arguments}" for call in message.tool_calls)
    by_person = "\n".join(person).casefold()
    by_anyone = "\n".join([by_person, *others]).casefold()
    found = {Flag.TOOL_WORDS} if tools_alone(view) else set()
    for hint in hints:
        if _STANDING.search(hint) or _news(_FOREVER, hint, by_person):
            found.add(Flag.STANDING_ORDER)
        if _news(_LINK, hint, by_person):
            found.add(Flag.LINK)
        if _news(_COMMAND, hint, by_person):
            found.add(Flag.COMMAND)
        if _news(_NAMED, _LINK.sub(" ", hint), by_anyone):
            found.add(Flag.UNRELATED)
    return tuple(flag for flag in Flag if flag in found)


def flags_of_feedback(feedback: Feedback, turn: RecordedTurn) -> tuple[Flag, ...]:
    """The flags of the hints that a person gives a turn."""
    given = NextState(feedback=feedback)
    return hint_flags(taught(feedback), view_of(turn.conversation, turn.message, given))


def unplanted(hints: Iterable[str], turn: Turn, next_state: NextState) -> tuple[str, ...]:
    """The hints without orders beyond the turn, and without addresses and commands that no person named.

    For rollouts of tasks, which no person reviews. Feedback is the task's own and may quote what a solution
    returned, so its words count as a tool's.
    """
    outcome = next_state.feedback
    words = Message(role="tool", content=outcome.text if outcome and outcome.text else "")
    after = NextState(messages=(*next_state.messages, words))
    view = view_of(turn.conversation, turn.message, after)
    return tuple(hint for hint in hints if PLANTED.isdisjoint(hint_flags([hint], view)))


def _news(pattern: re.Pattern[str], hint: str, said: str) -> bool:
    """Whether the hint has a match that is not in `said`."""
    return any(match.group().casefold().rstrip("(./,;:") not in said for match in pattern.finditer(hint))


OTHERS = 2
"""Other sources that must have voted the opposite on a kind of call."""
TIMES_AS_OFTEN = 4
"""The opposite votes needed for each equal one."""
ACCIDENTS = 2
"""Calls of a kind that failed at a source, beyond those that worked, from which such failures wait."""
BLAMES = 5
"""Rejections of text, without a hint, after which those of a source that approves of nothing wait."""
TRUSTED_UNTIL = 2
"""Contradictions of a source from which its approvals wait for a person too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The votes of one source on one kind of call."""

    approved: int = 0
    rejected: int = 0


def signature(message: Message) -> str | None:
    """The kind of a response's first tool call: its name, the names of its arguments, the flags among them.

    None for a response without a call. `delete {path, dry_run: true}` is another kind than `delete {path}`.
    """
    if not message.tool_calls:
        return None
    call = message.tool_calls[0]
    if (arguments := call.named_arguments()) is None:
        return f"{call.name} ?"
    named = (f"{name}={value}" if isinstance(value, bool) else name for name, value in arguments.items())
    return " ".join([call.name, *sorted(named)])


def previous(before: Sequence[Message]) -> str:
    """The kind of the latest call since a person last spoke: what is right after a check is wrong without it.

    Empty if there was none. `before`: the conversation before a response.
    """
    for message in reversed(before):
        if message.role == "user":
            return ""
        if kind := signature(message):
            return kind
    return ""


def several(said: Mapping[str, Votes], *, source: str) -> bool:
    """Whether enough sources other than `source` voted for their votes to count."""
    others = (votes for name, votes in said.items() if name != source)
    return sum(bool(votes.approved or votes.rejected) for votes in others) >= OTHERS


def contradicts(
    reward: int, *, source: str, said: Mapping[str, Votes], earlier: int, spoken: bool = True
) -> bool:
    """Whether a verdict of `source` on a kind of call waits for a person.

    `said`: each source's votes on this kind. `earlier`: rejections by `source` that contradicted the others
    and that no person accepted. `spoken`: a person's word decided; else the call only worked or failed. A
    call that worked contradicts no one. Nor does one that failed, until the source's failures exceed its
    successes by `ACCIDENTS`: until then their rewards cancel.
    """
    others = [votes for name, votes in said.items() if name != source]
    approved, rejected = [votes.approved for votes in others], [votes.rejected for votes in others]
    if reward > 0:
        return earlier >= TRUSTED_UNTIL or (spoken and _outweighs(rejected, approved))
    own = said.get(source, Votes())
    is_accident = not spoken and own.rejected < own.approved + ACCIDENTS
    return reward < 0 and not is_accident and _outweighs(approved, rejected)


def blames_all(said: Mapping[str, Votes], *, source: str) -> bool:
    """Whether `source` nearly always rejects, without a hint, text that several others approve.

    Text has no kind, so a single rejection contradicts no one. `said`: each source's approvals of text, and
    its rejections without a hint.
    """
    own, others = said.get(source, Votes()), [votes for name, votes in said.items() if name != source]
    is_habit = own.rejected >= max(BLAMES, TIMES_AS_OFTEN * own.approved)
    return is_habit and _outweighs([each.approved for each in others], [each.rejected for each in others])


def _outweighs(opposite: Sequence[int], same: Sequence[int]) -> bool:
    """Whether several sources voted the opposite, and much more often than the same."""
    return sum(map(bool, opposite)) >= OTHERS and sum(opposite) >= TIMES_AS_OFTEN * sum(same)
