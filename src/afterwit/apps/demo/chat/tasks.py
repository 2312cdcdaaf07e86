"""What people ask in the chat world: their notes, one question or two about them, the facts that answer."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from afterwit.apps.demo.chat.rules import RULES
from afterwit.apps.demo.names import NOUNS, person, thing
from afterwit.apps.demo.world import Split, Task, part

_OPENINGS = (
    "",
    "Here are my notes:",
    "I noted this:",
    "",
    "You should know:",
    "These are my notes:",
    "My notes:",
    "I wrote this down:",
    "",
    "For you to know:",
    "",
    "I have these notes:",
    "Please note:",
    "",
    "To remember:",
    "Look at my notes:",
    "",
    "What I wrote down:",
)
_ON = (
    "And",
    "Thanks. And",
    "Now,",
    "Ok, and",
    "Good. And",
    "One more:",
    "Next,",
    "Thank you, and",
    "Also,",
    "Then",
    "Fine. Now,",
    "Great. And",
)

NOTES = {
    "where": (
        "the {t} is in the {p}",
        "I keep the {t} in the {p}",
        "I put the {t} in the {p}",
        "the {t} lies in the {p}",
        "the {t} is kept in the {p}",
        "I left the {t} in the {p}",
        "the {t} belongs in the {p}",
        "you find the {t} in the {p}",
        "the {t} went into the {p}",
        "the {t} stays in the {p}",
        "they put the {t} in the {p}",
        "the {t} can be found in the {p}",
        "the {t} must be in the {p}",
        "I found the {t} in the {p}",
        "look for the {t} in the {p}",
        "we keep the {t} in the {p}",
        "the {t} should be in the {p}",
        "I saw the {t} in the {p}",
        "the {t} has its place in the {p}",
        "somebody put the {t} in the {p}",
        "the {t} was in the {p}",
        "my {t} is in the {p}",
        "we left the {t} in the {p}",
        "the {t} was put in the {p}",
    ),
    "who": (
        "the {t} is with {p}",
        "I gave the {t} to {p}",
        "I lent the {t} to {p}",
        "I left the {t} with {p}",
        "the {t} went to {p}",
        "they gave the {t} to {p}",
        "the {t} was taken by {p}",
        "we lent the {t} to {p}",
        "the {t} is kept by {p}",
        "the {t} belongs to {p}",
        "we left the {t} with {p}",
        "the {t} was given to {p}",
        "{p} has the {t}",
        "{p} took the {t}",
        "the {t} is now with {p}",
        "I handed the {t} to {p}",
        "{p} keeps the {t}",
        "we handed the {t} to {p}",
        "the {t} was lent to {p}",
        "{p} got the {t}",
        "they left the {t} with {p}",
        "{p} holds the {t}",
        "{p} has got the {t}",
        "the {t} was left with {p}",
    ),
    "when": (
        "the {t} comes {p}",
        "the {t} is {p}",
        "they bring the {t} {p}",
        "the {t} starts {p}",
        "the {t} will come {p}",
        "the {t} will be {p}",
        "we do the {t} {p}",
        "the {t} is due {p}",
        "I get the {t} {p}",
        "the {t} begins {p}",
        "they start the {t} {p}",
        "we get the {t} {p}",
        "the {t} will start {p}",
        "the {t} happens {p}",
        "we have the {t} {p}",
        "they said the {t} is {p}",
        "the {t} has to be {p}",
        "I have the {t} {p}",
        "the {t} takes place {p}",
        "we start the {t} {p}",
        "it says the {t} is {p}",
        "my {t} is {p}",
        "the {t} must be {p}",
        "we bring the {t} {p}",
    ),
    "howto": (
        "to {v} the {t}: {p}",
        "how to {v} the {t}: {p}",
        "you {v} the {t} like this: {p}",
        "this is how to {v} the {t}: {p}",
        "I {v} the {t} like this: {p}",
        "we {v} the {t} like this: {p}",
        "how I {v} the {t}: {p}",
        "what to do to {v} the {t}: {p}",
        "how we {v} the {t}: {p}",
        "to {v} the {t}, do this: {p}",
        "this is how you {v} the {t}: {p}",
        "how they {v} the {t}: {p}",
        "what you do to {v} the {t}: {p}",
        "if you want to {v} the {t}: {p}",
        "when I {v} the {t}: {p}",
        "in order to {v} the {t}: {p}",
        "here is how to {v} the {t}: {p}",
        "they {v} the {t} like this: {p}",
        "my way to {v} the {t}: {p}",
        "so you {v} the {t}: {p}",
        "if I want to {v} the {t}, I do this: {p}",
        "one can {v} the {t} like this: {p}",
        "the way to {v} the {t}: {p}",
        "all you do to {v} the {t}: {p}",
    ),
}

QUESTIONS = {
    "where": (
        "where is the {t}?",
        "where do I find the {t}?",
        "where did I put the {t}?",
        "in what place is the {t}?",
        "where can I find the {t}?",
        "where is the {t} kept?",
        "where do I look for the {t}?",
        "do you know where the {t} is?",
        "where is my {t}?",
        "tell me where the {t} is.",
        "can you say where the {t} is?",
        "where must I look for the {t}?",
    ),
    "who": (
        "who has the {t}?",
        "who took the {t}?",
        "who is it that has the {t}?",
        "whom do I ask for the {t}?",
        "who has got the {t}?",
        "who keeps the {t}?",
        "do you know who has the {t}?",
        "tell me who has the {t}.",
        "who holds the {t}?",
        "who has my {t}?",
        "tell me who took the {t}.",
        "can you say who has the {t}?",
    ),
    "when": (
        "when is the {t}?",
        "when does the {t} come?",
        "at what time is the {t}?",
        "when does the {t} start?",
        "when will the {t} come?",
        "when do we get the {t}?",
        "do you know when the {t} is?",
        "tell me when the {t} is.",
        "on what day is the {t}?",
        "when do I get the {t}?",
        "tell me when the {t} comes.",
        "can you say when the {t} is?",
    ),
    "howto": (
        "how do I {v} the {t}?",
        "how do you {v} the {t}?",
        "what do I do to {v} the {t}?",
        "tell me how to {v} the {t}.",
        "how can I {v} the {t}?",
        "how should I {v} the {t}?",
        "can you say how to {v} the {t}?",
        "do you know how to {v} the {t}?",
        "how does one {v} the {t}?",
        "how must I {v} the {t}?",
        "what must I do to {v} the {t}?",
        "say how to {v} the {t}.",
    ),
}

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_HOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "noon")
_DEEDS = ("clean", "fix", "open", "start", "stop", "use")
_VERBS = """
clean close cover drop empty fill fold heat hold lift lock move open paint press pull push rinse roll shake
spin stir tie turn warm wash wipe wrap
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """A note about a thing: what stands in it, and the pieces that an answer must tell in order."""

    kind: str
    thing: str
    noted: str
    facts: tuple[str, ...]
    deed: str = ""


def _where(about: str, split: Split, rng: Random) -> _Fact:
    place = thing(split, rng)
    return _Fact(kind="where", thing=about, noted=place, facts=(place,))


def _who(about: str, split: Split, rng: Random) -> _Fact:
    who = person(split, rng)
    return _Fact(kind="who", thing=about, noted=who, facts=(who,))


def _when(about: str, split: Split, rng: Random) -> _Fact:
    day, hour = f"on {rng.choice(_DAYS)}", f"at {rng.choice(_HOURS)}"
    return _Fact(kind="when", thing=about, noted=f"{day} {hour}", facts=(day, hour))


def _howto(about: str, split: Split, rng: Random) -> _Fact:
    steps = some_steps(rng)
    return _Fact(kind="howto", thing=about, noted=", ".join(steps), facts=steps, deed=rng.choice(_DEEDS))


def some_steps(rng: Random) -> tuple[str, ...]:
    """Three things to do, of words that all parts have."""
    pairs = zip(rng.sample(_VERBS.split(), 3), rng.sample(NOUNS, 3), strict=True)
    return tuple(f"{verb} the {noun}" for verb, noun in pairs)


_FACTS: dict[str, Callable[[str, Split, Random], _Fact]] = {
    "where": _where,
    "who": _who,
    "when": _when,
    "howto": _howto,
}
KINDS = ("where", "who", "when", "howto", "howto", "where_who", "howto_when")
"""A task's questions, in order; how-to questions come twice as often as the others."""


def draw(split: Split, rng: Random) -> Task:
    """A task of a random kind."""
    return of_kind(rng.choice(KINDS), split, rng)


def of_kind(kind: str, split: Split, rng: Random) -> Task:
    """A task whose first question stands with the notes; the others come once the one before is answered."""
    asked = kind.split("_")
    things = _two_things(split, rng)
    known = [_FACTS[one](about, split, rng) for one, about in zip(asked, things, strict=False)]
    other = rng.choice([one for one in ("where", "who", "when") if one not in asked])
    notes = rng.sample([*known, _FACTS[other](things[1], split, rng)][:2], 2)
    noted = [f"{_say(NOTES[one.kind], one, split, rng)}." for one in notes]
    first, *further = (_say(QUESTIONS[one.kind], one, split, rng) for one in known)
    return Task(
        kind=kind,
        request=_sentences(rng.choice(part(_OPENINGS, split)), *noted, first),
        onward=tuple(f"{rng.choice(part(_ON, split))} {question}" for question in further),
        files={},
        rules=rules_of("howto" if "howto" in asked else asked[0]),
        checks=tuple(one.facts for one in known),
        subject={one.kind: one.thing for one in known},
    )


def notebook(number: int, split: Split, rng: Random) -> tuple[str, list[tuple[str, tuple[str, ...]]]]:
    """So many notes, each of another kind, as one text; and a question about each of them with the facts that
    answer it, in another order.
    """
    known = [_FACTS[kind](thing(split, rng), split, rng) for kind in rng.sample(tuple(_FACTS), number)]
    noted = [f"{_say(NOTES[one.kind], one, split, rng)}." for one in known]
    asked = [(_say(QUESTIONS[one.kind], one, split, rng), one.facts) for one in rng.sample(known, number)]
    return _sentences(*noted), asked


def rules_of(kind: str) -> tuple[str, ...]:
    """The rules that apply to the answer of one kind of question."""
    return RULES if kind == "howto" else RULES[:3]


def _two_things(split: Split, rng: Random) -> tuple[str, str]:
    first, second = thing(split, rng), thing(split, rng)
    return (first, second) if first != second else _two_things(split, rng)


def _say(wordings: tuple[str, ...], fact: _Fact, split: Split, rng: Random) -> str:
    return rng.choice(part(wordings, split)).format(t=fact.thing, p=fact.noted, v=fact.deed)


def _sentences(*pieces: str) -> str:
    return " ".join(piece[0].upper() + piece[1:] for piece in pieces if piece)
