"""`python -m experiments.long_run MODEL`: hundreds of conversations of one person with a published model.

The person and their competent judge are those of `experiments.published`. The learner's own batches,
objective and updates run under the default settings, in this process: without gateway, store, publisher and
gate, a conversation costs some six CPU seconds, most of them the updates'.

Measured are the share of held-out questions whose answers have the form that the person likes, the
KL(base || policy) a token over the base's own answers to requests that nobody taught anything about, and the
answers that are empty or go round in circles. Finished runs are kept in DATA, a JSON line each, and printed
as a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings, load
from afterwit.demo.settings import changed
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.batch import Item, TurnLimits, build_items
from afterwit.learning.distributed.orders import updated
from afterwit.learning.distributed.ranks import ALONE
from afterwit.learning.models import load_model, use_threads
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.score import Row, response_logits
from afterwit.trial.people import is_bad
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from afterwit.verdict import JudgedTurn, Source, Verdict
from experiments.published import TEMPERATURE, WORDS, Person

ROOM = 48
"""Tokens of an answer at most: 25 words need some 35."""
AT_ONCE = 8
"""Conversations that are held with one version."""
MEASURED = (16, 32, 48, 96, 150, 200, 300)
"""Conversations after which the model is measured."""
CONTEXT = 2048
"""Tokens of a prompt and its response at most."""
OWN = ("model", "learner.dtype", "learner.device", "learner.threads")
"""Settings of this experiment, which change no result but by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A sampled response; `ended`: the model ended it, not its room."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """The engine: a model of its own, which takes the policy's weights and answers a batch at a time."""

    model: PreTrainedModel
    renderer: Renderer
    generator: torch.Generator

    @torch.no_grad()
    def take(self, policy: Policy) -> None:
        """Answer with the policy's weights from now on, its adapter added to them."""
        own = dict(self.model.named_parameters())
        for name, layer in policy.model.named_modules():
            if getattr(layer, "lora_A", None):
                up, down = layer.lora_B["default"].weight, layer.lora_A["default"].weight
                own[f"{name}.weight"].copy_(layer.base_layer.weight + layer.scaling["default"] * (up @ down))

    @torch.no_grad()
    def answers(self, prompts: Sequence[tuple[int, ...]]) -> list[Answer]:
        """A response to each prompt at `TEMPERATURE`. Prompts are padded on the left."""
        longest = max(map(len, prompts))
        ends_E = torch.tensor(sorted(self.renderer.end_ids))
        ids_BL = torch.tensor([(0,) * (longest - len(each)) + each for each in prompts])
        mask_BL = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in prompts])
        cache, said, found = DynamicCache(config=self.model.config), list[Tensor](), list[Tensor]()
        running_B = torch.ones(len(prompts), dtype=torch.bool)
        while running_B.any() and len(said) < ROOM:
            logits_BV = self.model(
                input_ids=ids_BL,
                attention_mask=mask_BL,
                position_ids=(mask_BL.cumsum(-1) - 1).clamp(min=0)[:, -ids_BL.shape[1] :],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            logprobs_BV = (logits_BV.float() / TEMPERATURE).log_softmax(-1)
            ids_BL = torch.multinomial(logprobs_BV.exp(), 1, generator=self.generator)
            said.append(ids_BL)
            found.append(logprobs_BV.gather(-1, ids_BL))
            mask_BL = torch.cat([mask_BL, torch.ones_like(ids_BL)], dim=1)
            running_B &= ~torch.isin(ids_BL[:, 0], ends_E)
        both = zip(torch.cat(said, dim=1).tolist(), torch.cat(found, dim=1).tolist(), strict=True)
        return [self._answer(ids, logprobs) for ids, logprobs in both]

    def _answer(self, ids: list[int], logprobs: list[float]) -> Answer:
        end = next((at for at, each in enumerate(ids) if each in self.renderer.end_ids), None)
        length = len(ids) if end is None else end + 1
        return Answer(
            ids=tuple(ids[:length]),
            logprobs=tuple(logprobs[:length]),
            text=self.renderer.decode(ids[:end]),
            ended=end is not None,
        )


@dataclass(slots=True, kw_only=True)
class Learner:
    """The policy, the turns that wait for it, and those that it has learned from."""

    settings: Settings
    policy: Policy
    frozen: FrozenModels
    renderer: Renderer
    waiting: list[JudgedTurn] = field(default_factory=list)
    trained: list[JudgedTurn] = field(default_factory=list)
    updates: list[dict[str, float]] = field(default_factory=list)

    def learn(self) -> None:
        """Update on whole batches of the turns that wait."""
        size = self.settings.learner.batch
        while len(self.waiting) >= size:
            batch, self.waiting = self.waiting[:size], self.waiting[size:]
            self._update(batch)

    def _update(self, batch: Sequence[JudgedTurn]) -> None:
        """With replayed turns that have hints, as `Claims.replayable` finds them."""
        learner, number = self.settings.learner, self.policy.number
        oldest = max(0, number - learner.max_staleness)
        hinted = [turn for turn in self.trained if turn.opd and turn.turn.sampled.oldest_version >= oldest]
        replayed = Random(number + 1).sample(hinted, min(learner.replay, len(hinted)))
        items = [*self._items(batch), *self._items(replayed)]
        found, _ = updated(
            self.policy, self.frozen, items, self.settings.objective, learner, lambda _: None, ALONE
        )
        self.updates.append(found)
        self.policy.number += 1
        self.trained += batch

    def _items(self, turns: Sequence[JudgedTurn]) -> list[Item]:
        number = self.policy.number
        limits = TurnLimits(
            max_tokens=CONTEXT,
            max_staleness=self.settings.learner.max_staleness,
            version=number,
            chain=range(number + 1),
        )
        objective = self.settings.objective
        items, refused = build_items(turns, self.renderer, Placement.LAST_USER, limits, objective)
        if refused:
            raise ValueError(f"turn {refused[0].turn} is refused: {refused[0].reason}")
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement."""

    conversations: int
    share: float
    """Of the held-out questions, answered in the form that the person likes."""
    complaints: int
    """First answers that the person disliked since the measurement before."""
    bad: int
    """Answers to the person, and to held-out questions, since then that are empty or go round in circles."""
    kl: float
    """KL(base || policy), nats a token, over the base's answers to requests that nobody taught about."""
    version: int
    way: float
    """Mean share of the way to the teacher that an update went since then."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One person, the engine and the learner."""

    person: Person
    learner: Learner
    sampler: Sampler
    plain: Sequence[tuple[Row, Tensor]]
    """Answers of the base to untouched requests, each with its log-probs over the vocabulary."""

    def play(self, conversations: int) -> list[Point]:
        """Measure at the moments of `MEASURED`, and at the end."""
        points, complaints, bad, first = list[Point](), 0, 0, 0
        for at in sorted({each for each in MEASURED if each < conversations} | {conversations}):
            while first < at:
                number = min(AT_ONCE, at - first)
                more = self.talk(first, number)
                complaints, bad, first = complaints + more[0], bad + more[1], first + number
                self.learner.learn()
                self.sampler.take(self.learner.policy)
            points.append(self.measure(at, complaints, bad, points[-1].version if points else 0))
            print(points[-1], flush=True)
            complaints = bad = 0
        return points

    def talk(self, first: int, number: int) -> tuple[int, int]:
        """The conversations from `first` on: how many first answers were disliked, and how many answers were
        bad. The second time the person leaves without a complaint."""
        begun = [asked(question) for question in self.person.questions(first + number)[first:]]
        answers, again = self._answers(begun), list[tuple[str, Conversation]]()
        for at, (conversation, answer) in enumerate(zip(begun, answers, strict=True), start=first):
            self._wait(conversation, answer, f"{at}a")
            if not self.person.content(answer.text):
                complaint = self.person.reaction(answer.text, f"{at} first")
                question = conversation.messages[0].content or ""
                again.append((f"{at}b", asked(question, answer.text, complaint)))
        second = self._answers([conversation for _, conversation in again])
        for (name, conversation), answer in zip(again, second, strict=True):
            if self.person.content(answer.text):
                self._wait(conversation, answer, name)
        return len(again), sum(is_bad(answer.text) for answer in (*answers, *second))

    def _answers(self, conversations: Sequence[Conversation]) -> list[Answer]:
        prompts = [self.learner.renderer.prompt_ids(each) for each in conversations]
        return self.sampler.answers(prompts) if prompts else []

    def _wait(self, conversation: Conversation, answer: Answer, name: str) -> None:
        """Let the turn wait for the learner, with a competent judge's verdict, if it teaches anything."""
        content, count = self.person.content(answer.text), len(answer.ids)
        turn = Turn(
            id=name,
            scope="person/chat",
            session=name,
            parent=None,
            kind=Kind.MAIN,
            created=0.0,
            model="afterwit",
            conversation=conversation,
            message=Message(role="assistant", content=answer.text),
            finish=Finish.STOP if answer.ended else Finish.LENGTH,
            prompt_ids=self.learner.renderer.prompt_ids(conversation),
            sampling=Sampling(max_tokens=ROOM, temperature=TEMPERATURE),
            sampled=Sampled(
                ids=answer.ids,
                logprobs=answer.logprobs,
                versions=(self.learner.policy.number,) * count,
                forced=(False,) * count,
            ),
        )
        known = WORDS["preferences"][self.person.preference]["hints"]
        hints = () if content else (Random(answer.text).choice(known),)
        verdict = Verdict(reward=1 if content else -1, source=Source.VOTES, hints=hints)
        terms = self.learner.settings.objective.reads.of(turn, verdict)
        if terms.reason is None:
            self.learner.waiting.append(JudgedTurn(turn=turn, verdict=verdict, rl=terms.rl, opd=terms.opd))

    def measure(self, conversations: int, complaints: int, bad: int, since: int) -> Point:
        """The policy as it is now; its updates after version `since`."""
        answers = [answer.text for answer in self._answers([asked(each) for each in self.person.held_out])]
        updates = self.learner.updates[since:]
        return Point(
            conversations=conversations,
            share=round(fmean(map(self.person.content, answers)), 3),
            complaints=complaints,
            bad=bad + sum(map(is_bad, answers)),
            kl=round(kl_from_base(self.learner.policy.model, self.plain), 4),
            version=self.learner.policy.number,
            way=round(fmean([each.get("way_to_teacher", 0.0) for each in updates] or [0.0]), 3),
        )


def asked(*texts: str) -> Conversation:
    """A conversation in which person and model took turns, the person first."""
    roles = ("user", "assistant")
    messages = (Message(role=roles[at % 2], content=text) for at, text in enumerate(texts))
    return Conversation(messages=tuple(messages))


@torch.no_grad()
def kl_from_base(model: PreTrainedModel, plain: Iterable[tuple[Row, Tensor]]) -> float:
    """The mean KL(base || model) of the tokens of answers, from the base's log-probs of them."""
    found: list[float] = []
    for row, base_TV in plain:
        now_TV = response_logits(model, [row])[0].float().log_softmax(-1)
        found += (base_TV.exp() * (base_TV - now_TV)).sum(-1).tolist()
    return fmean(found)


def begun(model: Path, person: Person, settings: Settings) -> Run:
    """A run before its first conversation."""
    renderer, learner = Renderer.load(model), settings.learner
    dtype = getattr(torch, learner.dtype)
    policy = Policy.load(Versions(root=model / "none", base=model), 0, learner)
    generator = torch.Generator().manual_seed(person.seed)
    engine = load_model(model, dtype=dtype, device=torch.device("cpu"))
    sampler = Sampler(model=engine, renderer=renderer, generator=generator)
    frozen, plain = FrozenModels(model, learner), list[tuple[Row, Tensor]]()
    prompts = [renderer.prompt_ids(asked(request)) for request in WORDS["untouched"]]
    for prompt, answer in zip(prompts, sampler.answers(prompts), strict=True):
        row = Row(prompt=prompt, response=answer.ids)
        with torch.no_grad():
            plain.append((row, response_logits(engine, [row])[0].float().log_softmax(-1)))
    made = Learner(settings=settings, policy=policy, frozen=frozen, renderer=renderer)
    return Run(person=person, learner=made, sampler=sampler, plain=plain)


def played(
    model: Path, person: Person, pairs: Sequence[str], *, conversations: int, dtype: str
) -> dict[str, Any]:
    """A run from its settings to the line that is kept."""
    own = {"model": str(model), "learner.dtype": dtype, "learner.device": "cpu", "learner.threads": 1}
    with TemporaryDirectory(prefix="afterwit-long-run-") as home:
        settings = load(home=Path(home), pairs=pairs, direct=own, environment={})
    use_threads(1)
    points = begun(model, person, settings).play(conversations)
    different = {name: value for name, value in changed(settings).items() if name not in OWN}
    return {
        "model": model.name,
        "preference": person.preference,
        "seed": person.seed,
        "settings": different,
        "points": [asdict(point) for point in points],
    }


def table(runs: Iterable[Mapping[str, Any]]) -> str:
    """A row for each run: at each measurement the share, and in brackets the KL from the base."""
    runs = sorted(runs, key=lambda run: (run["preference"], _settings(run), run["seed"]))
    moments = sorted({point["conversations"] for run in runs for point in run["points"]})
    heads = [
        "settings of its own",
        "preference",
        "seed",
        *map(str, moments),
        "disliked",
        "bad",
        "way",
    ]
    rows = [heads, ["---"] * len(heads)]
    for run in runs:
        points = {point["conversations"]: point for point in run["points"]}
        cells = [
            f"{points[at]['share']:.2f} ({points[at]['kl']:.2f})" if at in points else "" for at in moments
        ]
        every = points.values()
        rows.append(
            [
                *(_settings(run), run["preference"], str(run["seed"]), *cells),
                ", ".join(str(point["complaints"]) for point in every),
                str(sum(point["bad"] for point in every)),
                f"{fmean(point['way'] for point in every):.2f}",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _settings(run: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in run["settings"].items())


def main(
    model: Annotated[Path, typer.Argument(help="A model's folder.", exists=True, file_okay=False)],
    preference: Annotated[str, typer.Option(help="Of the person.")] = "short",
    seed: Annotated[list[int], typer.Option(help="Of the person; may be given again.")] = [0],  # noqa: B006 - Typer's way
    conversations: Annotated[int, typer.Option(help="How many the person holds.", min=1)] = 96,
    dtype: Annotated[str, typer.Option(help="Precision of learner and engine.")] = "bfloat16",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Finished runs.")] = Path("build/long_run.jsonl"),
) -> None:
    """Play a run for each seed, and keep a line of each."""
    for each in seed:
        person = Person(preference=preference, seed=each)
        run = played(model.resolve(), person, set_ or (), conversations=conversations, dtype=dtype)
        with data.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run, separators=(",", ":")) + "\n")
    print(table(map(json.loads, data.read_text(encoding="utf-8").splitlines())), end="")


if __name__ == "__main__":
    typer.run(main)
