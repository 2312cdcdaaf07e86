"""`afterwit plan`: what will sit where, before anything starts."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from afterwit.apps.cli.options import Config, Home, Model, ModelOption, Recipe, Set, chosen_model


def plan(
    model: Model = None,
    model_option: ModelOption = None,
    card: Annotated[
        str | None, typer.Option(help="Memory of a card, such as 80GB. Default: the cards of this machine.")
    ] = None,
    cards: Annotated[int, typer.Option(min=1, help="How many cards of that size there are.")] = 1,
    turns_per_day: Annotated[
        int | None, typer.Option(min=1, help="Also say what a day with this many turns asks of each part.")
    ] = None,
    card_hour: Annotated[
        float | None, typer.Option(min=0.0, help="What an hour of a card costs, for the cost of that day.")
    ] = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Say which part sits on which card, what it takes of it, and the lines that start it. Starts nothing.

    Exit code 1, with the numbers, if something does not fit or does not go together.
    """
    from afterwit.apps.config import home_of, load
    from afterwit.apps.planning.cards import cards_here, named_cards
    from afterwit.apps.planning.day.report import day_report
    from afterwit.apps.planning.day.traffic import Day
    from afterwit.apps.planning.report import models_of, report
    from afterwit.core.errors import AfterwitError, SettingError

    folder = home_of(home)
    direct = {"model": chosen_model(model, model_option)}
    given = [
        *(("--recipe", recipe) if recipe else ()),
        *(("--config", str(config)) if config else ()),
        *(("--home", str(home)) if home else ()),
        *(word for pair in set_ or () for word in ("--set", pair)),
    ]
    try:
        settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe)
        if card is not None and settings.placement.device == "cpu":
            raise SettingError(f"--card {card}: placement.device is cpu, where no part has a card")
        there = cards_here(settings.placement) if card is None else named_cards(card, cards)
        print(report(settings, folder, there, given=given))
        if turns_per_day is not None:
            models, day = models_of(settings, folder), Day(turns=turns_per_day)
            print(f"\n{day_report(settings, models, day, card_hour=card_hour)}")
    except AfterwitError as error:
        print(f"afterwit: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
