"""Turns of the chat world with known truth, and answers as an expert writes them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from random import Random

from afterwit.demo.chat import world as chat
from afterwit.demo.words import Split
from experiments.cases.case import CaseKind, LabelledCase, text_message


def cases(split: Split, number: int, seed: int) -> list[LabelledCase]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    return [_case(split, rng) for _ in range(number)]


def _case(split: Split, rng: Random) -> LabelledCase:
    """A first answer, in half of the cases with some rule broken, and the person's next words."""
    task = chat.draw(split, rng)
    kind = task.kind.split("_")[0]
    rules, thing, facts = chat.rules_of(kind), task.subject[kind], task.checks[0]
    broken = tuple(rule for rule in rules if rng.random() < 0.6) if rng.random() < 0.6 else ()
    is_wrong = not broken and rng.random() < 0.25
    told = chat.of_kind(kind, split, rng).checks[0] if is_wrong else facts
    answer = expert_answer(kind, thing, told, set(rules) - set(broken), rng)
    outcome: CaseKind
    if broken:
        outcome, said = "complaint", chat.SPEECH.complaint(broken, thing, split, rng)
    elif is_wrong:
        outcome, said = "failure", chat.SPEECH.failure(facts[-1], split, rng)
    elif task.follow_ups:
        outcome, said = "quiet", task.follow_ups[0]
    else:
        outcome, said = "approval", chat.SPEECH.approval(split, rng)
    return LabelledCase(
        kind=outcome,
        request=task.request,
        response=text_message("assistant", answer),
        following=(text_message("user", said),),
        rules=broken,
    )


_WARM = ("Hi!", "Hey!", "Sure!")
_STIFF_OPENING = ("Regarding your inquiry,", "Pursuant to your request,")
_PLAIN = {
    "where": ("the {t} is in the {p}.", "it is in the {p}."),
    "who": ("{p} has the {t}.", "it is {p}."),
    "when": ("the {t} is {p}.", "it is {p}."),
    "howto": ("first {0}, then {1}, then {2}.", "{0}, then {1}, and last {2}."),
    "list": ("\n1. {0}\n2. {1}\n3. {2}", "do this:\n1. {0}\n2. {1}\n3. {2}"),
    "more": (
        "I looked at all of your notes to find it.",
        "It is all there in what you wrote down.",
        "If you want to know more, just ask me again.",
        "You may want to write it down for later.",
    ),
}
_STIFF = {
    "where": (
        "the aforementioned {t} is situated in the {p}.",
        "the {t} is presently located in the {p}.",
    ),
    "who": ("the aforementioned {t} is in the possession of {p}.", "the {t} is presently retained by {p}."),
    "when": ("the aforementioned {t} is scheduled to occur {p}.", "the {t} is presently scheduled {p}."),
    "howto": (
        "initially {0}, subsequently {1}, ultimately {2}.",
        "kindly {0}, subsequently {1}, and ultimately {2}.",
    ),
    "list": (
        "kindly proceed as follows:\n1. {0}\n2. {1}\n3. {2}",
        "the required sequence is:\n1. {0}\n2. {1}\n3. {2}",
    ),
    "more": (
        "The foregoing is in accordance with the notes provided.",
        "Furthermore, this reference has been duly verified prior to this communication.",
        "Should additional clarification be required, kindly submit a subsequent inquiry.",
        "It is therefore advisable to retain this communication.",
    ),
}


def expert_answer(kind: str, thing: str, facts: Sequence[str], keep: Set[str], rng: Random) -> str:
    """An answer with these facts that keeps the rules in `keep` and none of the others."""
    plain = "plain" in keep
    wordings = _PLAIN if plain else _STIFF
    opening = [rng.choice(_WARM)] if "friendly" in keep else []
    opening += [] if plain else [rng.choice(_STIFF_OPENING)]
    core = rng.choice(wordings["list" if kind == "howto" and "steps" in keep else kind])
    said = " ".join([*opening, core.format(*facts, t=thing, p=" ".join(facts))])
    text = said.replace(" \n", "\n").strip()
    if "short" in keep:
        return text
    more = " ".join(rng.sample(wordings["more"], 2))
    return f"{text}\n{more}" if "\n" in text else f"{text} {more}"
