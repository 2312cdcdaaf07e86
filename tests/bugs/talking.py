"""The demo's model, and a copy that repeats the talk of its hints; the effect of hints on either."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.demo.tools.world import ToolsWorld
from afterwit.demo.words import Split
from afterwit.demo.world import Task
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.learning.models import load_model
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from afterwit.verdict import JudgedTurn, Verdict
from experiments.pretrain.hints import TOOLS as HINTS
from tests.fakes.renderers import renderer_of
from tests.fakes.sampling import sampled

WORLD = ToolsWorld()
SHIPPED = WORLD.folder / "model"
TAU, TOKENS = 0.6, 24
"""Talk of hints opens a response, if there is any."""
OPENING = "As the hint says"
SHARES = {"none": 0.2, "clean": 0.0, "talk": 0.9}
"""How often the talkative model opens with talk: without a hint, with one, with one that talks itself."""
STEPS, ROWS = 300, 16
"""Enough to distinguish a clean hint from one that talks: else its own teacher talks as much as it does."""
SETTINGS = LearnerSettings(lora_rank=0, lr=4e-4, weight_decay=0.0, device="cpu", threads=1, max_tokens=1024)
OBJECTIVE = ObjectiveSettings(objective="topk_opd", hint_selection="longest", logprob_diff_clip=0.0, beta=0.0)

Judged = Callable[[Task, Random], Verdict]
"""A judge's verdict on a response to a task."""


def asked(task: Task) -> Conversation:
    messages = (Message(role="system", content=WORLD.system), Message(role="user", content=task.request))
    return Conversation(messages=messages, tools=tuple(WORLD.tools))


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    random = Random(seed)
    return [WORLD.task(split, random) for _ in range(count)]


def model_in(folder: Path) -> PreTrainedModel:
    return load_model(folder, dtype=torch.float32, device=torch.device("cpu"))


def talkative(folder: Path) -> Path:
    """The shipped model, taught to open with talk of hints at the rates in `SHARES`, in `folder`."""
    renderer, random, model = renderer_of(SHIPPED), Random(1), model_in(SHIPPED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(STEPS):
        ids, labels = _padded([_lesson(renderer, random) for _ in range(ROWS)])
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    for path in SHIPPED.iterdir():
        if not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    return folder


def _lesson(renderer: Renderer, random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt, and how its response opens."""
    task, how = WORLD.task("train", random), random.choice(list(SHARES))
    hint = HINTS.official(task.rules, random)
    said = {"none": "", "clean": hint, "talk": f"{OPENING}: {hint}"}[how]
    opening = f"{OPENING}.\n" if random.random() < SHARES[how] else ""
    prompt = splice(asked(task), said, Placement.LAST_USER)
    return renderer.prompt_ids(prompt), renderer.encode(f"{opening}<tool_call>")


def _padded(rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and labels [B, L], on the right of which nothing is read and nothing learned."""
    longest = max(len(prompt) + len(said) for prompt, said in rows)
    ids, labels = torch.zeros(len(rows), longest, dtype=torch.int64), torch.full((len(rows), longest), -100)
    for row, (prompt, said) in enumerate(rows):
        ids[row, : len(prompt) + len(said)] = torch.tensor((*prompt, *said))
        labels[row, len(prompt) : len(prompt) + len(said)] = torch.tensor(said)
    return ids, labels


def talk_rate(model: PreTrainedModel, count: int = 200) -> float:
    """The share of hint-less responses to held-out tasks that speak of hints."""
    renderer = renderer_of(SHIPPED)
    said = _responses(model, renderer, tasks("fresh", count, seed=0), seed=5)
    return sum("hint" in renderer.decode(ids).lower() for ids in said) / count


def _responses(
    model: PreTrainedModel, renderer: Renderer, given: Sequence[Task], *, seed: int
) -> list[tuple[int, ...]]:
    prompts = [renderer.prompt_ids(asked(task)) for task in given]
    return sampled(model, prompts, tau=TAU, most=TOKENS, end_ids=renderer.end_ids, seed=seed)


def learn(base: Path, home: Path, judged: Judged, *, updates: int = 20, batch: int = 8) -> PreTrainedModel:
    """The policy after a number of updates from its own hint-less responses and the judge's verdicts."""
    renderer, random = renderer_of(base), Random(11)
    trainer = Trainer(Versions(root=home, base=base), renderer, settings=SETTINGS, objective=OBJECTIVE)
    trainer.begin(now=0.0)
    for number in range(updates):
        given = tasks("dev", batch, seed=1000 + number)
        said = _responses(trainer.policy().model, renderer, given, seed=100 + number)
        turns = [_turn(renderer, *each, version=number) for each in zip(given, said, strict=True)]
        pairs = zip(turns, given, strict=True)
        items, _ = trainer.build([_sample(turn, judged(task, random)) for turn, task in pairs])
        trainer.train(items, [], now=0.0, progress=lambda phase: None)
        trainer.versions.prune(1)
    return trainer.policy().model


def _sample(turn: Turn, verdict: Verdict) -> JudgedTurn:
    return JudgedTurn(turn=turn, verdict=verdict, rl=verdict.reward != 0, opd=bool(verdict.hints))


def _turn(renderer: Renderer, task: Task, ids: tuple[int, ...], *, version: int) -> Turn:
    count = len(ids)
    return Turn(
        id=f"{version} {task.request}",
        scope="test",
        session=task.request,
        parent=None,
        kind=Kind.MAIN,
        created=0.0,
        model="demo",
        conversation=asked(task),
        prompt_ids=renderer.prompt_ids(asked(task)),
        sampling=Sampling(max_tokens=TOKENS, temperature=TAU),
        sampled=Sampled(
            ids=ids, logprobs=(-1.0,) * count, versions=(version,) * count, forced=(False,) * count
        ),
        message=Message(role="assistant", content=renderer.decode(ids)),
        finish=Finish.STOP,
    )
