"""The base model's pretraining data: conversations of its three parts, drawn without end from one seed.

* policy: a task done with real tools in a scratch folder. Without a hint every rule is broken in 85 % of the
cases (`OLD_STYLE`) and kept in the rest; hinted rules are kept. 65 % of the conversations carry a hint.
Before a tenth of the calls comes one that fails (`mistakes`): what is learned is to go on.
* one sample in twenty-one is a copying exercise, and so are all of the first ones: without them names are
learnt late.
* judge: 22 % of the others, both prompts, about turns of such conversations and the person's next message.
* a model that goes on (`later`) also meets requests with meaningless words between their own: without them
an unknown word next to a name can spoil the copying of the name.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from afterwit.demo.tools import tasks
from afterwit.demo.tools import tasks as rules
from afterwit.demo.tools.tasks import SPEECH
from afterwit.demo.tools.world import SYSTEM, TOOLS, Workspace
from afterwit.demo.world import Message, Task
from experiments.cases.case import text_message
from experiments.cases.tools import DONE, Played, play
from experiments.pretrain import mistakes
from experiments.pretrain.example import NOISE, SPLICE, Example, copying, judged
from experiments.pretrain.hints import TOOLS as HINTS
from experiments.pretrain.noise import strewn, with_noise

OLD_STYLE, HINTED, JUDGE, COPY, STREWN, EXERCISES = 0.85, 0.65, 0.22, 0.05, 0.35, 6000
UNDERSTOOD, WELCOME, SORRY = "Understood.", "You are welcome.", "Sorry."
TOOL_LIST = "\n".join(
    f"{tool['function']['name']}({', '.join(tool['function']['parameters']['properties'])})" for tool in TOOLS
)
BOILERPLATE = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    '{"name": "',
    '", "arguments": {"',
    '": "',
    '", "',
    '"}}',
    '": true',
    '": false',
    "}}",
    ', "',
    ", ",
    ". ",
    TOOL_LIST,
)
"""Texts that the tokenizer keeps whole."""


def samples(seed: int) -> Iterator[Example]:
    """Pretraining samples; the same ones for the same seed."""
    return _samples(seed, 0.0)


def later(seed: int) -> Iterator[Example]:
    """Samples of a model that goes on: words without meaning also stand within the requests."""
    return _samples(seed, STREWN)


def _samples(seed: int, share: float) -> Iterator[Example]:
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterwit-corpus-") as folder:
        while True:
            if rng.random() < COPY:
                yield copying(rng)
            yield _judge(rng, Path(folder)) if rng.random() < JUDGE else _policy(rng, Path(folder), share)


def exercises(seed: int) -> Iterator[Example]:
    """Copying exercises alone, to begin with: names are copied before tasks are learnt."""
    rng = Random(seed)
    return (copying(rng) for _ in range(EXERCISES))


def _policy(rng: Random, folder: Path, share: float) -> Example:
    task = tasks.draw("train", rng)
    hinted = _hinted(task, rng) if rng.random() < HINTED else ()
    played = play(task, _kept(task, rng) | set(hinted), folder, _mistakes(rng))
    request = with_noise(strewn(task.request, share, rng), NOISE, rng)
    if hinted:
        request += SPLICE + with_noise(HINTS.worded(hinted, _file(task), "train", rng), 0.2, rng)
    tail = _reaction(played, rng)
    return Example(
        messages=[text_message("system", SYSTEM), text_message("user", request), *tail],
        mistakes=frozenset(index for index, failed in enumerate(played.failed) if failed),
        tools=TOOLS,
    )


def _mistakes(rng: Random) -> Callable[[rules.ToolStep, Workspace], Sequence[rules.ToolStep]]:
    return lambda step, files: mistakes.before(step, files, rng)


def _hinted(task: Task, rng: Random) -> tuple[str, ...]:
    """The rules a hint names: some of the task's own, now and then one that does not apply."""
    own = [rule for rule in task.rules if rule != "relative" or task.kind == "create"]
    pool = list(rules.RULES) if rng.random() < 0.12 else own
    return tuple(rng.sample(pool, rng.randint(1, min(2, len(pool)))))


def _kept(task: Task, rng: Random) -> set[str]:
    return {rule for rule in task.rules if rng.random() > OLD_STYLE}


def _reaction(played: Played, rng: Random) -> list[Message]:
    """The conversation's rest: to the end, or cut by a complaint at the first broken rule; perhaps an
    answer.
    """
    first = next((index for index, found in enumerate(played.broken) if found), None)
    if first is not None and rng.random() < 0.25:
        upset = SPEECH.complaint(played.broken[first], _file(played.task), "train", rng)
        return [
            *played.messages[: 2 * first + 2],
            text_message("user", upset),
            text_message("assistant", UNDERSTOOD),
        ]
    whole = [*played.messages, text_message("assistant", DONE)]
    if rng.random() < 0.25:
        failed = rng.random() < 0.2
        reply = SPEECH.failure(_output(rng), "train", rng) if failed else SPEECH.approval("train", rng)
        whole += [text_message("user", reply), text_message("assistant", SORRY if failed else WELCOME)]
    return whole


def _judge(rng: Random, folder: Path) -> Example:
    task = tasks.draw("train", rng)
    played = play(task, {rule for rule in task.rules if rng.random() < 0.4}, folder, _mistakes(rng))
    index = rng.randrange(len(played.broken) + 1)
    if index == len(played.broken):
        return _judge_end(task, rng)
    response, result, found = *played.messages[2 * index : 2 * index + 2], played.broken[index]
    chance = rng.random()
    if played.failed[index] and chance < 0.8:
        return judged(task.request, response, [result], -1, None, rng)
    if found and chance < 0.85:
        person = with_noise(SPEECH.complaint(found, _file(task), "train", rng), 0.3, rng)
        return judged(
            task.request,
            response,
            [result, text_message("user", person)],
            -1,
            HINTS.official(found, rng),
            rng,
        )
    if chance < 0.1:
        return judged(
            task.request, response, [result, text_message("user", SPEECH.unclear("train", rng))], 0, None, rng
        )
    if chance < 0.3:
        return judged(
            task.request,
            response,
            [result, text_message("user", SPEECH.approval("train", rng))],
            1,
            None,
            rng,
        )
    return judged(task.request, response, [result], 1, None, rng)


def _judge_end(task: Task, rng: Random) -> Example:
    """The last words of a task and the person's reaction."""
    chance, response = rng.random(), text_message("assistant", DONE)
    if chance < 0.6:
        thanks = with_noise(SPEECH.approval("train", rng), 0.3, rng)
        return judged(task.request, response, [text_message("user", thanks)], 1, None, rng)
    if chance < 0.85:
        failed = SPEECH.failure(_output(rng), "train", rng)
        return judged(task.request, response, [text_message("user", failed)], -1, None, rng)
    return judged(task.request, response, [text_message("user", SPEECH.unclear("train", rng))], 0, None, rng)


def _file(task: Task) -> str:
    return next(iter(task.subject.values()))


def _output(rng: Random) -> str:
    checks = rng.choice(tasks.draw("train", rng).checks)
    return f"{' '.join(checks)} gives {rng.choice(('nothing', 'no match', 'status 1'))}"
