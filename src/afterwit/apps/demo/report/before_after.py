"""The policy on the held-out tasks before and after a run: task by task, and rule by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afterwit.apps.demo.people import Score, Trial, calls
from afterwit.apps.demo.report.conversations import Conversation
from afterwit.apps.demo.world import Message

SHOWN = 6
"""Examples that a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A held-out task as it was done before and after."""

    request: str
    before: str
    after: str
    kept_before: bool
    kept_after: bool
    passed_before: bool
    passed_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLearned:
    """One rule: how many held-out tasks it applies to, in how many it was broken, and who taught it."""

    rule: str
    words: str
    tasks: int
    broken: tuple[int, ...]
    """In how many of them, at each measurement."""
    taught_in: tuple[int, ...]
    """Numbers of the conversations whose hints speak of it."""
    said: str | None
    """What the person said in the first of them."""


def examples(before: Score, after: Score) -> tuple[Example, ...]:
    """Tasks side by side. First one of every kind that is done right only now, then what is still wrong."""
    pairs = list(zip(before.trials, after.trials, strict=True))
    learned = [pair for pair in pairs if not pair[0].kept and pair[1].kept and pair[1].passed]
    firsts = {new.task.kind: (old, new) for old, new in reversed(learned)}
    wrong = [(old, new) for old, new in pairs if not (new.kept and new.passed)]
    chosen = [pair for pair in learned if pair in firsts.values()][: SHOWN - 1]
    return tuple(_example(*pair) for pair in [*chosen, *wrong[: SHOWN - len(chosen)]])


def _example(old: Trial, new: Trial) -> Example:
    return Example(
        request=old.task.request,
        before=transcript(old.messages),
        after=transcript(new.messages),
        kept_before=old.kept,
        kept_after=new.kept,
        passed_before=old.passed,
        passed_after=new.passed,
    )


def rules_learned(
    rules: Mapping[str, str], scores: Sequence[Score], conversations: Sequence[Conversation]
) -> tuple[RuleLearned, ...]:
    """Every rule, in the world's order, over measurements of the same tasks."""
    return tuple(
        _rule_learned(rule, words, scores, [each for each in conversations if rule in each.rules])
        for rule, words in rules.items()
    )


def _rule_learned(
    rule: str, words: str, scores: Sequence[Score], taught: Sequence[Conversation]
) -> RuleLearned:
    return RuleLearned(
        rule=rule,
        words=words,
        tasks=sum(rule in trial.task.rules for trial in scores[0].trials),
        broken=tuple(_broken(rule, score) for score in scores),
        taught_in=tuple(each.number for each in taught),
        said=taught[0].reaction if taught else None,
    )


def _broken(rule: str, score: Score) -> int:
    return sum(rule in trial.task.rules and rule in trial.broken for trial in score.trials)


def transcript(messages: Sequence[Message]) -> str:
    """What an agent did after the request: a line for every call, its result and every text."""
    lines = []
    for message in messages[2:]:
        lines += [f"{call.name} {call.arguments}" for call in calls(message)]
        mark = {"tool": "  -> ", "user": "person: "}.get(message["role"], "")
        lines += [mark + message["content"]] if message.get("content") else []
    return "\n".join(lines)
