"""`afterwit lessons`, and a person's orders about one lesson."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from afterwit.cli.help import Command, Group
from afterwit.cli.options import Config, Home, Json, loaded, store_of

lessons_app = typer.Typer(
    help="Show lessons: what your corrections ask for, and how far each is learned.",
    cls=Group,
    invoke_without_command=True,
)
Number = Annotated[int, typer.Argument(help="A lesson's number.")]


@lessons_app.callback()
def lessons(context: typer.Context, json_: Json = False, home: Home = None) -> None:
    """List the lessons: your corrections, how often you gave each, and how far it is learned.

    afterwit lessons
    afterwit lessons drop 3 --undo
    """
    if context.invoked_subcommand is None:
        from afterwit.printing.lessons import print_lessons

        print_lessons(home, json=json_)


@lessons_app.command(cls=Command)
def drop(
    number: Number,
    undo: Annotated[bool, typer.Option("--undo", help="Also forget all answers that practised it.")] = False,
    home: Home = None,
    config: Config = None,
) -> None:
    """Never practise a lesson again. Its corrections still teach once.

    afterwit lessons drop 3
    afterwit lessons drop 3 --undo    # the weights forget it too
    """
    from afterwit.practice import table

    if undo:
        from afterwit.home.forget import forget_practice

        said = forget_practice(*loaded(home, config), number)
        print(f"lesson {number} is dropped; {said}")
        return
    with store_of(home) as store:
        table.drop(store, number, now=time.time())
    print(f"lesson {number} is dropped: it is not practised any more")


@lessons_app.command(cls=Command)
def edit(
    number: Number,
    words: Annotated[str, typer.Argument(help="The instruction that the model should learn.")],
    home: Home = None,
) -> None:
    """Teach a lesson in your own words from now on.

    afterwit lessons edit 3 "Answer in at most two sentences."
    """
    from afterwit.practice import table

    redaction = loaded(home)[0].redaction
    with store_of(home) as store:
        table.edit(store, number, words, redaction, now=time.time())
    print(f"lesson {number} is taught in these words from now on")


@lessons_app.command(cls=Command)
def restrict(
    number: Number,
    client: Annotated[
        str, typer.Argument(help="Key and client, as listed; none: lift the restriction.")
    ] = "",
    home: Home = None,
) -> None:
    """Practise a lesson on prompts of one client alone.

    afterwit lessons restrict 3 local/opencode
    afterwit lessons restrict 3                   # every client's again
    """
    from afterwit.practice import table

    with store_of(home) as store:
        table.restrict(store, number, client or None, now=time.time())
    print(f"lesson {number} is practised on prompts of {client or 'every client'}")


@lessons_app.command(cls=Command)
def accept(number: Number, home: Home = None) -> None:
    """Practise a lesson on other prompts too, or at all if it waits for you.

    afterwit lessons accept 3
    """
    from afterwit.practice import table

    with store_of(home) as store:
        table.accept(store, number)
    print(f"lesson {number} is practised on other prompts of its kind too")
