"""Turns of the chat world with known truth, to measure judges on."""

from random import Random

from afterwit.apps.demo.chat import expert, tasks, words
from afterwit.apps.demo.world import CaseKind, LabelledCase, Split, Task, text_message


def cases(split: Split, number: int, seed: int) -> list[LabelledCase]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    return [_case(split, rng) for _ in range(number)]


def _case(split: Split, rng: Random) -> LabelledCase:
    """A first answer, in half of the cases with some rule broken, and the person's next words."""
    task = tasks.draw(split, rng)
    kind = task.kind.split("_")[0]
    rules, thing = tasks.rules_of(kind), task.subject[kind]
    broken = tuple(rule for rule in rules if rng.random() < 0.6) if rng.random() < 0.6 else ()
    facts, keep = task.checks[0], set(rules) - set(broken)
    if broken:
        answer = expert.answer(kind, thing, facts, keep, rng)
        return _made("complaint", task, answer, words.complaint(broken, thing, split, rng), broken)
    if rng.random() < 0.25:
        wrong = tasks.of_kind(kind, split, rng).checks[0]
        answer = expert.answer(kind, thing, wrong, keep, rng)
        return _made("failure", task, answer, words.failure(facts[-1], split, rng))
    answer = expert.answer(kind, thing, facts, keep, rng)
    if task.follow_ups:
        return _made("quiet", task, answer, task.follow_ups[0])
    return _made("approval", task, answer, words.approval(split, rng))


def _made(
    kind: CaseKind, task: Task, answer: str, following: str, rules: tuple[str, ...] = ()
) -> LabelledCase:
    return LabelledCase(
        kind=kind,
        request=task.request,
        response=text_message("assistant", answer),
        following=(text_message("user", following),),
        reward=1 if kind in ("quiet", "approval") else -1,
        rules=rules,
    )
