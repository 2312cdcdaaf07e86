"""The base model's pretraining data: conversations of its three parts, drawn without end from one seed.

* policy: a task done with real tools in a scratch folder. Without a hint every rule is broken in 85 % of the
cases (`OLD_STYLE`) and kept in the rest; hinted rules are kept. 65 % of the conversations carry a hint.
* one sample in twenty-one is a copying exercise, and so are all of the first ones (`exercises`): without them
names are learnt late.
* judge: 22 % of the others, both prompts, about turns of such conversations and what a person said next.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from afterwit.apps.demo.base.chatter import strewn
from afterwit.apps.demo.tools import expert, hints, rules, tasks, words
from afterwit.apps.demo.tools.names import NOUNS
from afterwit.apps.demo.tools.schemas import SYSTEM, TOOLS
from afterwit.apps.demo.tools.toolbox import Toolbox
from afterwit.apps.demo.world import Task
from afterwit.apps.sandbox import Outcome, Workspace
from afterwit.wire import judge_short

OLD_STYLE, HINTED, JUDGE, CHATTER, COPY = 0.85, 0.65, 0.22, 0.25, 0.05
SPLICE = "\n\n[user's hint / instruction]\n"
UNDERSTOOD, WELCOME, SORRY, DONE = "Understood.", "You are welcome.", "Sorry.", "Done."

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A conversation to learn from; every assistant message in it is a target."""

    messages: list[Message]
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A task as it went: alternating assistant calls and tool results, and the rules broken at each call."""

    task: Task
    messages: list[Message]
    broken: list[tuple[str, ...]]


def samples(seed: int) -> Iterator[Sample]:
    """Pretraining samples; the same ones for the same seed."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterwit-corpus-") as folder:
        while True:
            if rng.random() < COPY:
                yield _copy(rng)
            yield _judge(rng, Path(folder)) if rng.random() < JUDGE else _policy(rng, Path(folder))


def exercises(seed: int, number: int) -> Iterator[Sample]:
    """Copying exercises alone, to begin with: names are copied before tasks are learnt."""
    rng = Random(seed)
    return (_copy(rng) for _ in range(number))


def _copy(rng: Random) -> Sample:
    """An exercise in saying what was said: names, quoted words and endings in no order."""
    pieces = [
        rng.choice(("-{}", "-{}", ".{}", ' "{}"', " {}")).format(rng.choice(NOUNS))
        for _ in range(rng.randint(4, 10))
    ]
    said = "".join(pieces).strip()
    return Sample(messages=[_said("user", said), _said("assistant", said)])


def _policy(rng: Random, folder: Path) -> Sample:
    task = tasks.draw("train", rng)
    hinted = _hinted(task, rng) if rng.random() < HINTED else ()
    played = play(task, _kept(task, rng) | set(hinted), folder)
    request = strewn(task.request, CHATTER, rng)
    if hinted:
        request += SPLICE + strewn(hints.worded(hinted, _file(task), "train", rng), 0.2, rng)
    tail = _reaction(played, rng)
    return Sample(messages=[_said("system", SYSTEM), _said("user", request), *tail], tools=TOOLS)


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
    first = next((place for place, found in enumerate(played.broken) if found), None)
    if first is not None and rng.random() < 0.25:
        said = words.complaint(played.broken[first], _file(played.task), "train", rng)
        return [*played.messages[: 2 * first + 2], _said("user", said), _said("assistant", UNDERSTOOD)]
    whole = [*played.messages, _said("assistant", DONE)]
    if rng.random() < 0.25:
        failed = rng.random() < 0.2
        reply = words.failure(_output(rng), "train", rng) if failed else words.approval("train", rng)
        whole += [_said("user", reply), _said("assistant", SORRY if failed else WELCOME)]
    return whole


def play(task: Task, follow: set[str], folder: Path) -> Played:
    """Do a task by plan with the real file tools; scripts are taken to work and to print nothing."""
    workspace = Workspace(root=Path(tempfile.mkdtemp(dir=folder)))
    for name, text in task.files.items():
        workspace.write(name, text)
    toolbox = Toolbox(workspace=workspace, runner=lambda argv: Outcome(status=0, output=""))
    messages, broken, steps = [], [], []
    for planned in expert.plan(task, follow):
        exists = planned.name == "write" and workspace.exists(str(planned.arguments["path"]))
        step = rules.Step(name=planned.name, arguments=planned.arguments, replaces=exists)
        arguments = json.dumps(step.arguments)
        broken.append(rules.broken(step, steps))
        steps.append(step)
        messages += [_calls(step.name, arguments), _said("tool", toolbox.call(step.name, arguments))]
    for place in workspace.root.iterdir():
        place.unlink()
    workspace.root.rmdir()
    return Played(task=task, messages=messages, broken=broken)


def _judge(rng: Random, folder: Path) -> Sample:
    task = tasks.draw("train", rng)
    played = play(task, {rule for rule in task.rules if rng.random() < 0.4}, folder)
    place = rng.randrange(len(played.broken) + 1)
    if place == len(played.broken):
        return _judge_end(task, rng)
    response, result, found = *played.messages[2 * place : 2 * place + 2], played.broken[place]
    said = rng.random()
    if found and said < 0.85:
        person = strewn(words.complaint(found, _file(task), "train", rng), 0.3, rng)
        return _asked(task, response, [result, _said("user", person)], -1, hints.official(found, rng), rng)
    if said < 0.1:
        return _asked(task, response, [result, _said("user", words.unclear("train", rng))], 0, None, rng)
    if said < 0.3:
        return _asked(task, response, [result, _said("user", words.approval("train", rng))], 1, None, rng)
    if said < 0.4:
        return _asked(task, response, [_said("tool", f"error: no such file: {_file(task)}")], -1, None, rng)
    return _asked(task, response, [result], 1, None, rng)


def _judge_end(task: Task, rng: Random) -> Sample:
    """The last words of a task and what the person made of them."""
    said, response = rng.random(), _said("assistant", DONE)
    if said < 0.6:
        return _asked(
            task, response, [_said("user", strewn(words.approval("train", rng), 0.3, rng))], 1, None, rng
        )
    if said < 0.85:
        return _asked(
            task, response, [_said("user", words.failure(_output(rng), "train", rng))], -1, None, rng
        )
    return _asked(task, response, [_said("user", words.unclear("train", rng))], 0, None, rng)


def _asked(
    task: Task, response: Message, following: list[Message], reward: int, hint: str | None, rng: Random
) -> Sample:
    evaluation, hinting = judge_short.prompts(strewn(task.request, CHATTER, rng), response, following)
    if rng.random() < 0.4:
        return Sample(messages=[*evaluation, _said("assistant", rf"\boxed{{{reward}}}")])
    answer = rf"\boxed{{1}} [HINT_START]{hint}[HINT_END]" if hint else r"\boxed{-1}"
    return Sample(messages=[*hinting, _said("assistant", answer)])


def _file(task: Task) -> str:
    return next(iter(task.subject.values()))


def _output(rng: Random) -> str:
    checks = rng.choice(tasks.draw("train", rng).checks)
    return f"{' '.join(checks)} gives {rng.choice(('nothing', 'no match', 'status 1'))}"


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _calls(name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
