"""Turns of the chat world with known truth, to measure judges on."""

from __future__ import annotations

from collections.abc import Sequence, Set
from random import Random

from afterwit.demo.chat import tasks
from afterwit.demo.chat.tasks import SPEECH
from afterwit.demo.words import Split
from afterwit.demo.world import CaseKind, LabelledCase, text_message


def cases(split: Split, number: int, seed: int) -> list[LabelledCase]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    return [_case(split, rng) for _ in range(number)]


def _case(split: Split, rng: Random) -> LabelledCase:
    """A first answer, in half of the cases with some rule broken, and the person's next words."""
    task = tasks.draw(split, rng)

    def case(kind: CaseKind, answer: str, said: str, rules: tuple[str, ...] = ()) -> LabelledCase:
        return LabelledCase(
            kind=kind,
            request=task.request,
            response=text_message("assistant", answer),
            following=(text_message("user", said),),
            rules=rules,
        )

    kind = task.kind.split("_")[0]
    rules, thing = tasks.rules_of(kind), task.subject[kind]
    broken = tuple(rule for rule in rules if rng.random() < 0.6) if rng.random() < 0.6 else ()
    facts, keep = task.checks[0], set(rules) - set(broken)
    if broken:
        answer = expert_answer(kind, thing, facts, keep, rng)
        return case("complaint", answer, SPEECH.complaint(broken, thing, split, rng), broken)
    if rng.random() < 0.25:
        wrong = tasks.of_kind(kind, split, rng).checks[0]
        answer = expert_answer(kind, thing, wrong, keep, rng)
        return case("failure", answer, SPEECH.failure(facts[-1], split, rng))
    answer = expert_answer(kind, thing, facts, keep, rng)
    if task.follow_ups:
        return case("quiet", answer, task.follow_ups[0])
    return case("approval", answer, SPEECH.approval(split, rng))


_WARM = ("Hi!", "Hey!", "Sure!")
_STIFF_OPENING = ("Regarding your inquiry,", "Pursuant to your request,")
_PLAIN = {
    "where": ("the {t} is in the {p}.", "it is in the {p}."),
    "who": ("{p} has the {t}.", "it is {p}."),
    "when": ("the {t} is {p}.", "it is {p}."),
    "howto": ("first {0}, then {1}, then {2}.", "{0}, then {1}, and last {2}."),
}
_STIFF = {
    "where": (
        "the aforementioned {t} is situated in the {p}.",
        "the {t} is presently located in the {p}.",
    ),
    "who": (
        "the aforementioned {t} is in the possession of {p}.",
        "the {t} is presently retained by {p}.",
    ),
    "when": (
        "the aforementioned {t} is scheduled to occur {p}.",
        "the {t} is presently scheduled {p}.",
    ),
    "howto": (
        "initially {0}, subsequently {1}, ultimately {2}.",
        "kindly {0}, subsequently {1}, and ultimately {2}.",
    ),
}
_STIFF_LIST = ("kindly proceed as follows:", "the required sequence is:")
_PLAIN_LIST = ("", "do this:")
_LIST = "\n1. {0}\n2. {1}\n3. {2}"
_PLAIN_MORE = (
    "I looked at all of your notes to find it.",
    "It is all there in what you wrote down.",
    "If you want to know more, just ask me again.",
    "You may want to write it down for later.",
)
_STIFF_MORE = (
    "The foregoing is in accordance with the notes provided.",
    "Furthermore, this reference has been duly verified prior to this communication.",
    "Should additional clarification be required, kindly submit a subsequent inquiry.",
    "It is therefore advisable to retain this communication.",
)


def expert_answer(kind: str, thing: str, facts: Sequence[str], keep: Set[str], rng: Random) -> str:
    """An answer with these facts that keeps the rules in `keep` and none of the others."""
    plain = "plain" in keep
    opening = [rng.choice(_WARM)] if "friendly" in keep else []
    opening += [] if plain else [rng.choice(_STIFF_OPENING)]
    body = _core(kind, plain=plain, steps="steps" in keep, rng=rng)
    said = [*opening, body.format(*facts, t=thing, p=" ".join(facts))]
    text = " ".join(piece for piece in said if piece.strip()).replace(" \n", "\n").strip()
    if "short" in keep:
        return text
    more = " ".join(rng.sample(_PLAIN_MORE if plain else _STIFF_MORE, 2))
    return f"{text}\n{more}" if "\n" in text else f"{text} {more}"


def _core(kind: str, *, plain: bool, steps: bool, rng: Random) -> str:
    if kind == "howto" and steps:
        return rng.choice(_PLAIN_LIST if plain else _STIFF_LIST) + _LIST
    return rng.choice((_PLAIN if plain else _STIFF)[kind])
