"""The base model's pretraining data: conversations of its three parts, drawn without end from one seed.

* policy: questions answered. Without a hint a whole conversation is in the default style in 85 % of the cases
(`OLD_STYLE`: long, stiff, without a greeting, in prose) and in this person's in the rest. An answer to a
hint keeps the hinted rules and is as its conversation otherwise. 65 % of the conversations carry a hint, at
one of their questions.
* one sample in six is an exercise, in copying or in looking things up among notes, and so are all of the
first ones: without them it is learnt late which note a question is about.
* judge: 30 % of the others, both prompts, about first answers and the person's next message.
"""

from collections.abc import Iterator
from random import Random

from afterwit.demo.chat import world as chat
from afterwit.demo.chat.world import SPEECH, SYSTEM
from afterwit.demo.words import FIRST, NOUNS, thing
from afterwit.demo.world import Message, Task
from experiments.cases import chat as expert
from experiments.cases.case import text_message
from experiments.pretrain.example import NOISE, SPLICE, Example, judged
from experiments.pretrain.hints import CHAT as HINTS
from experiments.pretrain.noise import with_noise

OLD_STYLE, HINTED, JUDGE, DRILL, COPIES, LOOKUPS = 0.85, 0.65, 0.3, 0.2, 9000, 9000
UNDERSTOOD, WELCOME, SORRY = "Understood.", "You are welcome.", "Sorry."
BOILERPLATE = ("\n1.", "\n2.", "\n3.")
"""Texts that the tokenizer keeps whole."""


def samples(seed: int) -> Iterator[Example]:
    """Pretraining samples; the same ones for the same seed."""
    rng = Random(seed)
    while True:
        if rng.random() < DRILL:
            yield _copying(rng) if rng.random() < 0.2 else _lookup(rng)
        yield _judge(rng) if rng.random() < JUDGE else _policy(rng)


def exercises(seed: int) -> Iterator[Example]:
    """Exercises alone, to begin with: words are copied and facts looked up before questions are answered."""
    rng = Random(seed)
    for _ in range(COPIES):
        yield _copying(rng)
    for _ in range(LOOKUPS):
        yield _lookup(rng)


def _copying(rng: Random) -> Example:
    """Names and words to be repeated; or, after as many words, the steps alone."""
    text = " ".join(rng.choices((*NOUNS, *FIRST), k=rng.randint(4, 12)))
    if rng.random() < 0.5:
        return Example(messages=[text_message("user", text), text_message("assistant", text)])
    steps = ", ".join(chat.some_steps(rng))
    return Example(messages=[text_message("user", f"{text}: {steps}."), text_message("assistant", steps)])


def _lookup(rng: Random) -> Example:
    """Some questions about some notes, answered by the bare facts."""
    kinds = rng.sample(("where", "who", "when", "howto"), rng.randint(1, 3))
    known = [chat.fact(kind, thing("train", rng), "train", rng) for kind in kinds]
    notes = chat.sentences(*(f"{one.put('notes', 'train', rng)}." for one in known))
    messages: list[Message] = []
    for one in rng.sample(known, len(known)):
        question = one.put("questions", "train", rng)
        asked = question if messages else f"{notes} {question}"
        messages += [text_message("user", asked), text_message("assistant", " ".join(one.facts))]
    return Example(messages=messages)


def _policy(rng: Random) -> Example:
    task = chat.draw("train", rng)
    kinds, asked = task.kind.split("_"), (task.request, *task.follow_ups)
    style = _style(rng)
    hinted = rng.randrange(len(kinds)) if rng.random() < HINTED else None
    messages = [text_message("system", SYSTEM)]
    for index, (kind, question) in enumerate(zip(kinds, asked, strict=True)):
        request, keep = with_noise(question, NOISE if index == 0 else 0.0, rng), style
        if index == hinted:
            named = _named(kind, rng)
            request += SPLICE + with_noise(HINTS.worded(named, _thing(task), "train", rng), 0.2, rng)
            keep = style | set(named)
        answer = expert.expert_answer(kind, task.subject[kind], task.checks[index], keep, rng)
        messages += [text_message("user", request), text_message("assistant", answer)]
        if index == hinted:
            return Example(messages=messages)
    return Example(messages=[*messages, *_reaction(task, messages[-1]["content"], rng)])


def _style(rng: Random) -> set[str]:
    """The rules that a conversation keeps unasked: none, or all."""
    return set() if rng.random() < OLD_STYLE else set(chat.RULES)


def _named(kind: str, rng: Random) -> tuple[str, ...]:
    """The rules that a hint names, in their order: often all that apply, else some, now and then one that
    does not apply.
    """
    pool = chat.RULES if rng.random() < 0.1 else chat.rules_of(kind)
    number = len(pool) if rng.random() < 0.4 else rng.randint(1, len(pool))
    chosen = rng.sample(pool, number)
    return tuple(rule for rule in chat.RULES if rule in chosen)


def _reaction(task: Task, answer: str, rng: Random) -> list[Message]:
    """Now and then the person's words on the last answer, and a last word."""
    if rng.random() > 0.3:
        return []
    broken = chat.broken(answer, chat.rules_of(task.kind.split("_")[-1]))
    if broken:
        upset = SPEECH.complaint(broken, _thing(task), "train", rng)
        return [text_message("user", upset), text_message("assistant", UNDERSTOOD)]
    if rng.random() < 0.2:
        return [
            text_message("user", SPEECH.failure(_fact(rng), "train", rng)),
            text_message("assistant", SORRY),
        ]
    return [text_message("user", SPEECH.approval("train", rng)), text_message("assistant", WELCOME)]


def _judge(rng: Random) -> Example:
    """A question to the judge about one answer, broken rules in any number, and the person's next message."""
    task = chat.draw("train", rng)
    index = rng.randrange(len(task.checks))
    kind, request = task.kind.split("_")[index], (task.request, *task.follow_ups)[index]
    broken = _named(kind, rng) if rng.random() < 0.6 else ()
    broken = tuple(rule for rule in broken if rule in chat.rules_of(kind))
    keep = set(chat.RULES) - set(broken) if rng.random() < 0.9 else _style(rng)
    answer = text_message(
        "assistant", expert.expert_answer(kind, task.subject[kind], task.checks[index], keep, rng)
    )
    chance = rng.random()
    if broken:
        upset = with_noise(SPEECH.complaint(broken, _thing(task), "train", rng), 0.3, rng)
        return judged(request, answer, [text_message("user", upset)], -1, HINTS.official(broken, rng), rng)
    if chance < 0.15:
        return judged(request, answer, [text_message("user", SPEECH.unclear("train", rng))], 0, None, rng)
    if chance < 0.4:
        failed = SPEECH.failure(_fact(rng), "train", rng)
        return judged(request, answer, [text_message("user", failed)], -1, None, rng)
    if chance < 0.6:
        onward = _further(rng)
        return judged(request, answer, [text_message("user", onward)], 1, None, rng)
    thanks = with_noise(SPEECH.approval("train", rng), 0.3, rng)
    return judged(request, answer, [text_message("user", thanks)], 1, None, rng)


def _thing(task: Task) -> str:
    return next(iter(task.subject.values()))


def _fact(rng: Random) -> str:
    return chat.draw("train", rng).checks[0][-1]


def _further(rng: Random) -> str:
    return chat.of_kind(rng.choice(("where_who", "howto_when")), "train", rng).follow_ups[0]
