"""Trains a home's judged turns with verl: `torchrun --standalone --nproc-per-node N -m afterwit_hosts.verl`.

In an environment that has verl and Afterwit. Gateway and judge run elsewhere, over the same home:
`afterwit serve --stages gateway,judge`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from afterwit.api.commands import Config, Home, LearnerProcesses, Model, Recipe, Set
from afterwit.api.learning import Placed, run
from afterwit.api.settings import LearnerSettings, home_of, load
from afterwit.api.turns import AfterwitError, SettingError

FULL_WEIGHTS = {"learner": {"lora_rank": 0}}
"""Settings that verl needs; other values are refused."""


def train(
    model: Model = None,
    engine: Annotated[
        str, typer.Option(metavar="JSON", help="Fields of verl's FSDPEngineConfig, as a JSON object.")
    ] = "{}",
    verl_model: Annotated[
        str, typer.Option(metavar="JSON", help="Fields of verl's HFModelConfig, as a JSON object.")
    ] = "{}",
    follow: Annotated[bool, typer.Option(help="Go on and wait for more turns until stopped.")] = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Train on the judged turns of a home with verl's FSDP2 engine, writing a version for each update."""
    options = {"engine": options_of("--engine", engine), "model": options_of("--verl-model", verl_model)}
    folder = home_of(home)
    direct = {"model": model, "learner.processes": learner_processes}
    settings = load(
        home=folder, file=config, pairs=set_ or (), direct=direct, below=FULL_WEIGHTS, recipe=recipe
    )
    placed = Placed.of(os.environ)
    learner = in_verl(settings.learner, settings.learner.processes if placed is None else placed.size)
    try:
        from afterwit_hosts.verl.policy import Options
        from afterwit_hosts.verl.trainer import VerlTrainer
    except ModuleNotFoundError as error:
        raise SettingError(
            f"this needs {error.name}: install verl and Afterwit together, in an environment of their own"
        ) from error
    kind = partial(VerlTrainer, options=Options(**options))
    run(settings.model_copy(update={"learner": learner}), folder, forever=follow, kind=kind)


def options_of(flag: str, text: str) -> Mapping[str, Any]:
    """Options in a flag's JSON. Raises SettingError unless it is an object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SettingError(f"{flag} is {text}, which is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingError(f"{flag} is {text}, but must be a JSON object")
    return found


def in_verl(settings: LearnerSettings, processes: int) -> LearnerSettings:
    """The settings of a learner in verl: each process holds a part of the model, and reads whole logits.

    SettingError if verl cannot train by them.
    """
    if settings.lora_rank:
        raise SettingError(
            f"learner.lora_rank is {settings.lora_rank}, but verl's engine trains full weights here: set it"
            " to 0, or train the adapter with `afterwit train`"
        )
    if settings.dtype == "float64":
        raise SettingError("learner.dtype is float64, which verl does not know: set float32 or bfloat16")
    if "ema" in (settings.teacher, settings.reference):
        raise SettingError("the mean of the weights is not kept under verl: set learner.teacher = 'base'")
    try:
        return replace(settings, processes=processes, shards=processes, loss_backend="plain", packing="off")
    except ValueError as error:
        raise SettingError(f"learner: {error}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it, by default with the process's arguments; our own errors are one line, without a traceback."""
    app = typer.Typer(add_completion=False)
    app.command()(train)
    try:
        app(arguments)
    except AfterwitError as error:
        print(f"afterwit: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
