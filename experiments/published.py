"""`python -m experiments.published MODEL`: what a published model learns from one person by default.

A person asks everyday questions through the official client, 16 conversations at a time. They like answers
of one form ("at most 25 words", which a program checks), complain of others in their own words, and say
thanks. A competent judge, a program that knows the preference, votes and writes the hints; with
`--own-judge` the settings' own judge does. Measured is the share of held-out questions whose answers have
the form, before and after, and on requests that nobody taught anything about: the KL to the base a token,
and answers that are empty or go round in circles.

The system is the one that serves: gateway, judge, publisher, the learner in its own process. Finished runs
are kept in DATA, a JSON line each, and are the table of PAGE.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any

import torch
import typer
from openai import OpenAI
from transformers import AutoTokenizer

from afterwit.build import versions_of
from afterwit.config import load
from afterwit.demo.live import LiveSystem, live
from afterwit.demo.people import SIDE
from afterwit.demo.settings import changed
from afterwit.lifecycle import State
from afterwit.trial import people
from afterwit.weights.load import load_causal_lm
from afterwit.weights.lora import adapted, lora_of, pairs_of
from experiments.study.page import filled

WORDS = people.words()
MARK = "published"
AT_ONCE = 16
"""Conversations, and answers of a measurement, at one time."""
TEMPERATURE = 0.7
ROOM = 100
"""Tokens of an answer at most."""
HELD_OUT = 32
"""Questions of a measurement, which the person never asks."""
PATIENCE_S = 1800.0
"""Longest wait for the learner to come to rest."""
PREFERENCES = ("short", "greeting")
"""Those of the trial's people that were studied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with one preference; what they ask and how they speak follows from the seed."""

    preference: str
    seed: int

    @property
    def held_out(self) -> list[str]:
        """The questions that they never ask."""
        return self._shuffled()[:HELD_OUT]

    def questions(self, number: int) -> list[str]:
        """What they ask in so many conversations; from the beginning again once all was asked."""
        asked = self._shuffled()[HELD_OUT:]
        return [asked[at % len(asked)] for at in range(number)]

    def content(self, answer: str) -> bool:
        """Whether they like it."""
        return people.CHECKS[self.preference](people.Said(answer))

    def reaction(self, answer: str, turn: str) -> str:
        """Thanks, or a complaint; `turn` chooses the wording."""
        said = WORDS["thanks"] if self.content(answer) else WORDS["preferences"][self.preference]
        return str(Random(f"{self.seed} {turn}").choice(said["said"]))

    def _shuffled(self) -> list[str]:
        return Random(self.seed).sample(WORDS["questions"], len(WORDS["questions"]))


@dataclass(frozen=True, slots=True)
class CompetentJudge:
    """A judge that knows the preference: right of every response, with a hint in one of several wordings."""

    person: Person

    def __call__(self, prompt: Sequence[Mapping[str, str]]) -> str:
        """The judge's text for one evaluation or hint prompt, in full or short form."""
        shown = prompt[-1]["content"]
        if "RESPONSE of the assistant]" not in shown:  # is it harmful to follow a hint?
            return r"\boxed{accept}"
        content = self.person.content(_response(shown))
        if "HINT_START" not in prompt[0]["content"]:
            return r"\boxed{1}" if content else r"\boxed{-1}"
        if content:
            return r"\boxed{-1}"
        hints = WORDS["preferences"][self.person.preference]["hints"]
        return rf"\boxed{{1}} [HINT_START]{Random(shown).choice(hints)}[HINT_END]"


def _response(shown: str) -> str:
    """The response in a judge's prompt."""
    found = re.search(r"\[BEGIN (\w+) RESPONSE of the assistant\]\n(.*?)\n\[END \1\]", shown, re.DOTALL)
    if found is None:
        raise ValueError("the judge's prompt shows no response")
    return found[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement."""

    conversations: int
    share: float
    """Of the held-out questions, answered in the form that the person likes."""
    complaints: int
    """First answers that the person disliked since the measurement before."""
    version: int
    kl: float
    """KL to the base, nats a token, over answers to requests that nobody taught anything about."""
    bad: int
    """Of these and the held-out answers, those that are empty or go round in circles."""
    words: float
    """Mean length of the answers to those requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The person at a gateway, by the official client."""

    client: OpenAI
    person: Person

    def talk(self, first: int, number: int) -> int:
        """Hold the conversations from `first` on; how many first answers were disliked."""
        asked = self.person.questions(first + number)[first:]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return sum(pool.map(self._conversation, range(first, first + number), asked))

    def _conversation(self, number: int, question: str) -> bool:
        """Whether the first answer was disliked. The second time the person leaves without a complaint."""
        named = {"X-Session-Id": f"person-{self.person.seed}-{number}"}
        messages: list[Any] = [{"role": "user", "content": question}]
        answer = self._answer(messages, named)
        disliked = not self.person.content(answer)
        reaction = self.person.reaction(answer, f"{number} first")
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": reaction}]
        if not disliked:
            self._answer(messages, named, room=1)
            return False
        answer = self._answer(messages, named)
        if self.person.content(answer):
            thanks = self.person.reaction(answer, f"{number} second")
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": thanks}]
            self._answer(messages, named, room=1)
        return True

    def answers(self, questions: Iterable[str], *, room: int = ROOM) -> list[str]:
        """The answers to single questions, in order, as side traffic that never trains."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = [[{"role": "user", "content": question}] for question in questions]
            return list(pool.map(lambda messages: self._answer(messages, SIDE, room=room), asked))

    def _answer(self, messages: list[Any], headers: Mapping[str, str], *, room: int = ROOM) -> str:
        made = self.client.chat.completions.create(
            model="afterwit",
            messages=messages,
            max_tokens=room,
            temperature=TEMPERATURE,
            extra_headers=dict(headers),
        )
        return made.choices[0].message.content or ""


@torch.no_grad()
def kl_to_base(folder: Path, version: Path, pairs: Sequence[tuple[str, str]]) -> float:
    """Mean KL(version || base) a token over the answers of (request, answer) pairs, exact over the
    vocabulary, at temperature 1."""
    tokenizer, base = AutoTokenizer.from_pretrained(folder), load_causal_lm(folder, torch.float32)
    lora = lora_of(version)
    if lora is None:
        learned = load_causal_lm(version, torch.float32)
    else:
        learned = adapted(base, pairs_of(version), lora.scale)
    found: list[float] = []
    for request, answer in pairs:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": request}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        said = tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids, rows = torch.tensor([[*prompt, *said]]), slice(len(prompt) - 1, -1)
        now_TV, before_TV = (model(ids).logits[0, rows].log_softmax(-1) for model in (learned, base))
        found += (now_TV.exp() * (now_TV - before_TV)).sum(-1).tolist()
    return fmean(found) if found else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: the person, the running system, and what was measured so far."""

    person: Person
    system: LiveSystem
    model: Path
    home: Path

    def play(self, conversations: int) -> list[Point]:
        """Measure at the start and after every `AT_ONCE` conversations."""
        asker = Asker(client=OpenAI(base_url=self.system.url, api_key="none"), person=self.person)
        points = [self.measure(asker, 0, 0)]
        for first in range(0, conversations, AT_ONCE):
            number = min(AT_ONCE, conversations - first)
            complaints = asker.talk(first, number)
            self.rest()
            points.append(self.measure(asker, first + number, complaints))
            print(points[-1], flush=True)
        return points

    def measure(self, asker: Asker, conversations: int, complaints: int) -> Point:
        """The version that is served now."""
        held_out = asker.answers(self.person.held_out)
        untouched = list(zip(WORDS["untouched"], asker.answers(WORDS["untouched"]), strict=True))
        version = self.system.version()
        folder = versions_of(self.home, self.model).weights(version)
        return Point(
            conversations=conversations,
            share=round(fmean(map(self.person.content, held_out)), 3),
            complaints=complaints,
            version=version,
            kl=round(kl_to_base(self.model, folder, untouched), 4) if version else 0.0,
            bad=sum(map(people.is_bad, [*held_out, *(answer for _, answer in untouched)])),
            words=round(fmean(len(answer.split()) for _, answer in untouched), 1),
        )

    def rest(self) -> None:
        """Wait until all that was said is judged, trained and served."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            states, versions = self.system.store(lambda store: (store.counts().states, store.versions()))
            quiet = not states.get(State.ANSWERED) and states.get(State.JUDGED, 0) < self._batch
            if quiet and self.system.version() >= max((row.number for row in versions), default=0):
                return
            time.sleep(0.5)
        raise TimeoutError(f"the learner did not come to rest in {PATIENCE_S:.0f} s")

    @property
    def _batch(self) -> int:
        return self.system.settings.learner.batch


def played(
    model: Path, person: Person, pairs: Sequence[str], *, conversations: int, own_judge: bool
) -> dict[str, Any]:
    """A run from its settings to the line that is kept."""
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="afterwit-published-") as folder:
        home = Path(folder)
        direct = {"model": str(model), "serve.port": 0}
        settings = load(home=home, pairs=pairs, direct=direct, environment={})
        judge = None if own_judge else CompetentJudge(person)
        with live(settings, home, rules=judge) as system:
            points = Run(person=person, system=system, model=model, home=home).play(conversations)
    return {
        "model": model.name,
        "preference": person.preference,
        "seed": person.seed,
        "judge": "own" if own_judge else "competent",
        "settings": {name: value for name, value in changed(settings).items() if name != "model"},
        "points": [asdict(point) for point in points],
        "seconds": round(time.time() - began),
    }


def kept(data: Path) -> list[dict[str, Any]]:
    """Every finished run."""
    return (
        [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()] if data.exists() else []
    )


def table(runs: Iterable[Mapping[str, Any]]) -> str:
    """A row for each run: at each measurement the share, and in brackets the KL to the base."""
    runs = sorted(runs, key=lambda run: (run["judge"], run["preference"], _own(run), run["seed"]))
    measured = sorted({point["conversations"] for run in runs for point in run["points"]})
    titles = ["judge", "preference", "seed", *("start" if at == 0 else str(at) for at in measured)]
    rows = [[*titles, "first answers disliked", "empty or circling", "settings of its own"]]
    rows.append(["---"] * len(rows[0]))
    for run in runs:
        points = {point["conversations"]: point for point in run["points"]}
        cells = [
            f"{points[at]['share']:.2f} ({points[at]['kl']:.2f})" if at in points else "" for at in measured
        ]
        disliked = ", ".join(str(point["complaints"]) for point in run["points"][1:])
        bad = str(sum(point["bad"] for point in run["points"][1:]))
        rows.append([run["judge"], run["preference"], str(run["seed"]), *cells, disliked, bad, _own(run)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _own(run: Mapping[str, Any]) -> str:
    """The settings that were not the defaults."""
    return ", ".join(f"`{name}={value}`" for name, value in run["settings"].items())


def main(
    model: Annotated[Path, typer.Argument(help="A model's folder.", exists=True, file_okay=False)],
    preference: Annotated[str, typer.Option(help=f"One of {', '.join(PREFERENCES)}.")] = "short",
    seed: Annotated[list[int], typer.Option(help="Of the person; may be given again.")] = [0],  # noqa: B006 - Typer's way
    conversations: Annotated[int, typer.Option(help="How many the person holds.", min=1)] = 16,
    own_judge: Annotated[bool, typer.Option(help="The settings' judge in place of a competent one.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Finished runs.")] = Path("docs/data/published.jsonl"),
    page: Annotated[Path, typer.Option(help="The page with the table.")] = Path("docs/models.md"),
) -> None:
    """Play a run for each seed, and keep a line of each."""
    if preference not in PREFERENCES:
        raise typer.BadParameter(f"{preference}: it must be one of {', '.join(PREFERENCES)}")
    for each in seed:
        person = Person(preference=preference, seed=each)
        run = played(model.resolve(), person, set_ or (), conversations=conversations, own_judge=own_judge)
        data.parent.mkdir(parents=True, exist_ok=True)
        with data.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run, separators=(",", ":")) + "\n")
    found = table(kept(data))
    print(found)
    if page.exists():
        page.write_text(filled(page.read_text(encoding="utf-8"), MARK, found), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
