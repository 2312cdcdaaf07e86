"""`python -m experiments.published MODEL`: what a published model learns from one person.

The person, their competent judge and the measurements are those of `afterwit trial`; with `--own-judge` the
settings' own judge votes. With `--recorded 40 --conversations 1` the person first asks 40 questions and
leaves without a word; one correction follows, and the versions that practice makes are measured meanwhile.
With `--pause 4 --conversations 96 --minutes 180` the person pauses after four conversations until practice
rests, a quarter of an hour at most. With `--in-prompt` the lesson of the first correction is in the
prompts of new conversations, and nothing is trained. More questions (`--held-out 64`) measure more exactly.

Finished runs are kept in DATA, a JSON line each, and printed as a table.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from afterwit.chat_format.render import Renderer
from afterwit.config import load
from afterwit.demo.live import live
from afterwit.demo.people import AT_ONCE, written
from afterwit.demo.settings import changed
from afterwit.errors import SettingError
from afterwit.home.model import model_folder
from afterwit.judging.hinted_prompts import splice
from afterwit.practice.rounds import next_round
from afterwit.trial.people import SETTING, Person, competent_judge, is_bad, names
from afterwit.trial.play import Played, Point, Trial, prompt_of

PAUSE_S = 900.0
"""Longest pause in which practice goes on."""
QUIET = 20
"""Looks in a row, a second apart, that find nothing to practise: then it is over."""


def played(
    model: Path,
    person: Person,
    pairs: Sequence[str],
    *,
    recorded: int,
    pause: int,
    in_prompt: bool,
    conversations: int,
    minutes: int,
    own_judge: bool,
) -> dict[str, Any]:
    """A run from its settings to the line that is kept."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="afterwit-published-") as folder:
        direct = {"model": str(model), "serve.port": 0} | (lessons_in_prompts() if in_prompt else {})
        settings = load(home=Path(folder), pairs=pairs, direct=direct, environment={})
        judge = None if own_judge else competent_judge([person])
        with live(settings, Path(folder), rules=judge) as system:
            trial = Trial(
                system=system,
                played=Played(identity={}),
                candidates=[person],
                renderer=Renderer.load(model_folder(settings.model, Path(folder))),
                own_words=own_judge,
                until=began + 60.0 * minutes,
                began=began,
            )
            if in_prompt:
                told = reminded(trial, person)
            else:
                talked(trial, person, recorded=recorded, pause=pause, conversations=conversations)
                told = trial.played.ceiling or 0
    talks = trial.played.talks
    return {
        "model": model.stem,
        "preference": person.preference,
        "seed": person.seed,
        "held_out": person.held_out,
        "judge": "own" if own_judge else "competent",
        "recorded": recorded,
        "pause": pause,
        "in_prompt": in_prompt,
        "settings": {name: value for name, value in changed(settings).items() if name not in direct},
        "told": round(told / person.held_out, 3),
        "disliked": sum(not talk.liked for talk in talks),
        "points": [shown(point) for point in trial.played.points],
    }


def talked(trial: Trial, person: Person, *, recorded: int, pause: int, conversations: int) -> None:
    """Measure the original model, and what each part of the run has taught."""
    trial.begin(person)
    if recorded:
        asked(trial, person, recorded)
        trial.converse(person, conversations)
        practised(trial, person, trial.until, each=True)
    elif pause:
        trial.converse(person, pause)
        practised(trial, person, min(trial.until, time.monotonic() + PAUSE_S), each=False)
    while len(trial.played.talks) < conversations and time.monotonic() < trial.until:
        trial.converse(person, conversations)
        measured(trial, person)


def lessons_in_prompts() -> dict[str, Any]:
    """Settings with which new prompts show what is not learned yet, and nothing is practised for now."""
    later = datetime.now() + timedelta(hours=12)
    hours = f"{later:%H:%M}-{later + timedelta(minutes=1):%H:%M}"
    return {"practice.at_once": True, "learner.hours": hours}


def reminded(trial: Trial, person: Person) -> int:
    """Hold conversations until the person has corrected an answer, and measure the first answers of new ones.
    Returns how many the person likes of the teacher that reads this correction."""
    trial.begin(person)
    while not (lessons := trial.system.store(lambda store: store.lessons())):
        trial.converse(person, len(trial.played.talks) + 1)
    prompts, placement = [prompt_of(each) for each in person.measured], trial.system.settings.judge.placement
    told = trial.answers([splice(each, lessons[0].words, placement) for each in prompts], SETTING)
    new = trial.answers(prompts, SETTING, session="new")
    point = Point(
        conversations=len(trial.played.talks),
        seconds=time.monotonic() - trial.began,
        version=trial.system.version(),
        kept=person.liked(new),
        of=len(new),
        kl=None,
        worse=0,
        bad=sum(is_bad(written(each)) for each in new),
        answers=tuple(map(written, new)),
    )
    trial.played.points.append(point)
    print(shown(point), flush=True)
    return person.liked(told)


def asked(trial: Trial, person: Person, number: int) -> None:
    """Hold `number` conversations in which the person does not comment on the answer. Their questions come
    after those of the conversations."""
    prompts = map(prompt_of, person.questions(AT_ONCE, number))
    trial.answers(prompts, SETTING, session="left")


def practised(trial: Trial, person: Person, until: float, *, each: bool) -> None:
    """Wait until practice rests, or `until`, and measure what is served then; with `each`, every version."""
    settings, quiet, version = trial.system.settings, 0, 0
    while quiet < QUIET and time.monotonic() < until:
        found = trial.system.store(
            lambda store: next_round(store, settings.practice, settings.learner, now=time.time())
        )
        rests = isinstance(found, str) and "waits for the" not in found
        quiet = quiet + 1 if rests else 0
        if each and trial.system.version() > version:
            version = measured(trial, person).version
        time.sleep(1.0)
    measured(trial, person)


def measured(trial: Trial, person: Person) -> Point:
    """Measure the version that is served now, and print what was found."""
    point = trial.measure(person)
    print(shown(point), flush=True)
    return point


def shown(point: Point) -> dict[str, Any]:
    """A measurement as it is kept."""
    return {
        "conversations": point.conversations,
        "version": point.version,
        "share": round(point.kept / point.of, 3),
        "kl": None if point.kl is None else round(point.kl, 3),
        "bad": point.bad,
        "worse": point.worse,
        "seconds": round(point.seconds),
    }


def table(runs: Iterable[Mapping[str, Any]]) -> str:
    """A row for each run: the share at each measurement, and in brackets the KL from the base."""
    rows = [
        [
            "run",
            "seed",
            "with the hint",
            "share (KL), by conversations or updates",
            "empty or circling",
            "worse",
        ]
    ]
    rows.append(["---"] * len(rows[0]))
    for run in sorted(runs, key=lambda run: (run["judge"], run["recorded"], _own(run), run["seed"])):
        by = "version" if run["recorded"] else "conversations"
        cells = [f"{point[by]}: {point['share']:.2f} ({point['kl'] or 0:.2f})" for point in run["points"]]
        kind = f"{run['judge']} judge, `{run['preference']}`"
        kind += f", {run['recorded']} recorded, one correction" if run["recorded"] else ""
        kind += f", a pause after {run['pause']}" if run["pause"] else ""
        kind += ", one correction in the prompt" if run["in_prompt"] else ""
        bad, worse = (sum(point[name] for point in run["points"][1:]) for name in ("bad", "worse"))
        share = ", ".join(cells)
        rows.append([kind + _own(run), str(run["seed"]), f"{run['told']:.2f}", share, str(bad), str(worse)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _own(run: Mapping[str, Any]) -> str:
    """The settings that were not the defaults."""
    return "".join(f", `{name}={value}`" for name, value in run["settings"].items())


def main(
    model: Annotated[Path, typer.Argument(help="A folder, or a GGUF file.", exists=True)],
    preference: Annotated[str, typer.Option(help="Of the person; as of `afterwit trial`.")] = "short",
    seed: Annotated[list[int], typer.Option(help="Of the person; may be given again.")] = [0],  # noqa: B006 - Typer's way
    conversations: Annotated[int, typer.Option(help="How many the person holds.", min=1)] = 16,
    recorded: Annotated[int, typer.Option(help="Questions before them, without a word.", min=0)] = 0,
    pause: Annotated[
        int, typer.Option(help="Conversations before a pause for practice.", min=0, max=AT_ONCE)
    ] = 0,
    in_prompt: Annotated[
        bool, typer.Option("--in-prompt", help="One correction, shown in the prompts of new conversations.")
    ] = False,
    held_out: Annotated[int, typer.Option(help="Questions that measure, which no one asks.", min=1)] = 32,
    minutes: Annotated[int, typer.Option(help="The longest that a run takes.", min=1)] = 60,
    own_judge: Annotated[bool, typer.Option(help="The settings' judge in place of a competent one.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Finished runs.")] = Path("docs/data/published.jsonl"),
) -> None:
    """Play a run for each seed, and keep a line of each."""
    if preference not in (known := names(tools=False, problems=False)):
        raise typer.BadParameter(f"{preference}: it must be one of {', '.join(known)}")
    if pause and (recorded or pause > conversations):
        raise typer.BadParameter("--pause goes without --recorded, and is at most --conversations")
    if in_prompt and (recorded or pause):
        raise typer.BadParameter("--in-prompt goes without --recorded and --pause")
    for each in seed:
        person = Person(preference=preference, seed=each, held_out=held_out)
        try:
            person.questions(0, 1)
        except SettingError as error:
            raise typer.BadParameter(f"--held-out: {error}") from error
        run = played(
            model.resolve(),
            person,
            set_ or (),
            recorded=recorded,
            pause=pause,
            in_prompt=in_prompt,
            conversations=conversations,
            minutes=minutes,
            own_judge=own_judge,
        )
        data.parent.mkdir(parents=True, exist_ok=True)
        with data.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run, separators=(",", ":")) + "\n")
    runs = map(json.loads, data.read_text(encoding="utf-8").splitlines())
    print(table(runs))


if __name__ == "__main__":
    typer.run(main)
