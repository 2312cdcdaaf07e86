"""The commands that steer what is learned: `pause`, `review`, `lessons`, `rollback`, `forget`, and others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from afterwit.cli.help import Command, Group
from afterwit.cli.look import ALL
from afterwit.cli.options import Config, Home, Json, Limit, SessionNamed, choice, listed, loaded, store_of
from afterwit.errors import AfterwitError

if TYPE_CHECKING:
    from afterwit.store import Store


def pause(
    reason: Annotated[str | None, typer.Argument(help="The reason, for later readers.")] = None,
    home: Home = None,
) -> None:
    """Learn nothing until `afterwit resume`: turns are served, recorded and judged, and wait.

    A pause survives restarts. An update that has begun is finished; alarms still take versions back.

        afterwit pause "guests use it today"
    """
    from afterwit.text import counted

    with store_of(home) as store:
        store.pause(reason or "", now=time.time())
        busy = store.in_update(now=time.time())
    begun = f"; an update of {counted(busy, 'turn')} had begun and is finished" if busy else ""
    print(f"learning is paused: no update begins until `afterwit resume`{begun}")


def resume(home: Home = None) -> None:
    """End a pause: waiting turns train.

    afterwit resume
    """
    with store_of(home) as store:
        ended = store.resume()
    print("learning was not paused" if ended is None else "learning goes on")


def review(
    turns: Annotated[
        list[str] | None, typer.Argument(help="Turn ids or their beginnings; `all`: every one that waits.")
    ] = None,
    accept: Annotated[
        bool | None, typer.Option("--accept/--refuse", help="Let them train, or never.")
    ] = None,
    json_: Json = False,
    home: Home = None,
) -> None:
    """List the turns that wait for your review, and why; accept or refuse them.

    `learner.review` chooses the turns that wait: off, flagged (doubtful ones) or all.

        afterwit review
        afterwit review TURN --accept
        afterwit review all --refuse
    """
    from afterwit.errors import SettingError
    from afterwit.learning.schedule import with_note
    from afterwit.printing.terminal import Terminal, write_json
    from afterwit.printing.turns import review_json, review_lines
    from afterwit.text import counted

    if bool(turns) is (accept is None):
        raise SettingError(
            "choose --accept or --refuse for these turns"
            if turns
            else "name the turns, or `all`: `afterwit review all --accept`"
        )
    settings = loaded(home)[0].learner
    console = Terminal()
    with store_of(home) as store:
        rule = with_note(settings, store.note("learn")).teaching
        found = store.withheld(rule, now=time.time())
        if turns and accept is not None:
            ids = [record.turn.id for record in found] if turns == [ALL] else [*map(store.resolve, turns)]
            _review(store, ids, accept=accept)
            return
    for record in found:
        if json_:
            write_json(review_json(record))
            continue
        for line in review_lines(record):
            console.say(line)
    if not json_:
        wait = "waits" if len(found) == 1 else "wait"
        print(f"{counted(len(found), 'turn')} {wait} for your review (learner.review = {rule.review.value})")


def _review(store: Store, turns: Sequence[str], *, accept: bool) -> None:
    for turn, outcome in store.review(turns, accept=accept, now=time.time()).items():
        print(f"{turn}  {outcome.words}")
    if not turns:
        print("no turn waits for your review: nothing was changed")


def exclude(
    session: SessionNamed,
    undo: Annotated[bool, typer.Option("--undo", help="Let its new turns train again.")] = False,
    home: Home = None,
) -> None:
    """Learn nothing from a session: neither its waiting turns nor new ones train.

    It is served and recorded as before. Earlier learning stays until `afterwit rollback`.

        afterwit exclude last
        afterwit exclude SESSION --undo
    """
    from afterwit.printing.names import session_named
    from afterwit.text import counted
    from afterwit.turn import SHARED

    with store_of(home) as store:
        name = session_named(store, session)
        if undo:
            was = store.include(name)
            print(f"session {name} {'may teach again' if was else 'was not excluded'}")
            return
        found, versions = store.exclude(name, now=time.time()), store.versions()
    print(f"session {name} teaches nothing: {counted(found.ended, 'turn')} ended")
    if found.in_update:
        print(f"an update is training {counted(found.in_update, 'turn')} of this session")
    for adapter in dict.fromkeys(each.adapter for each in versions if each.number in found.trained):
        trained = [each for each in versions if each.adapter == adapter and each.number in found.trained]
        numbers = f"version{'s' * (len(trained) > 1)} {', '.join(str(each.number) for each in trained)}"
        whose, flag = ("", "") if adapter == SHARED else (f" of {adapter}", f" --adapter {adapter}")
        back = f"`afterwit rollback {trained[0].parent or 0}{flag}` takes it back"
        print(f"{numbers}{whose} trained on it before: {back}")


def rollback(
    version: Annotated[int, typer.Argument(help="The version to return to; 0 is the original model.")],
    adapter: Annotated[
        str | None,
        typer.Option(help="Whose learning is taken back. Default: the version's; of version 0, `shared`."),
    ] = None,
    home: Home = None,
) -> None:
    """Take learning back: publish a new version with an old one's weights and optimiser state.

    The turns trained since are marked reverted and never train again by themselves. A running `serve` picks
    the new version up within a second.

        afterwit rollback 3
        afterwit rollback 0    # the original model
    """
    from afterwit import text
    from afterwit.build import versions_of
    from afterwit.checkpoints.versions import roll_back
    from afterwit.home.model import model_folder
    from afterwit.learning.schedule import that_teach
    from afterwit.turn import SHARED

    settings, folder = loaded(home)
    with store_of(home) as store:
        versions = versions_of(folder, model_folder(settings.model, folder), settings.versions)
        made = roll_back(versions.of(adapter), version, now=time.time())
        try:
            store.commit_version(made, now=time.time())
        except AfterwitError as error:
            done = f"version {made.number} has the weights of version {version}; `serve` records it"
            raise type(error)(f"{done}, for the store could not: {error}") from error
        waiting = that_teach(store.waiting(now=time.time()), settings.learner.teaching)
        left = len(waiting) + store.in_update(now=time.time())
        learns = settings.learner.enabled and store.paused() is None
    taken = text.listed(made.reverts) or "none"
    whose = "" if made.adapter == SHARED else f" of {made.adapter}"
    print(f"version {made.number}{whose} has the weights of version {version}; updates taken back: {taken}")
    if left and learns:
        wait = "waits" if left == 1 else "wait"
        print(f"{text.counted(left, 'judged turn')} {wait} to be learned; `afterwit pause` stops that")


def requeue(
    turns: Annotated[
        list[str] | None,
        typer.Argument(help="Turn ids or their beginnings; none: every turn that failed."),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Only turns skipped for this reason.")] = None,
    home: Home = None,
) -> None:
    """Return failed turns to the step that failed.

    afterwit requeue
    afterwit requeue --reason learner_failed
    """
    from afterwit.lifecycle import Reason
    from afterwit.text import counted

    with store_of(home) as store:
        why = choice(Reason, reason, "--reason")
        named = [*map(store.resolve, turns)] if turns else None
        count = store.requeue(named, reason=why, now=time.time())
    print(f"{counted(count, 'turn')} put back")


def forget(
    session: Annotated[
        str | None, typer.Argument(help="A session's id; or a turn's, for its session; or `last`.")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(help="Instead of a session, everything that an adapter learned from: `key:NAME`."),
    ] = None,
    replay: Annotated[
        bool, typer.Option(help="Run later updates again without it; otherwise they are taken back too.")
    ] = True,
    home: Home = None,
    config: Config = None,
) -> None:
    """Forget a conversation: delete it, and make the weights as if they had never trained on it.

    With `--adapter`, all conversations in which a personal adapter answered: it becomes the base again.

    The weights of all versions that hold one of its turns are deleted. A killed command has changed
    nothing, or the next learner that starts finishes it.

        afterwit forget last
        afterwit forget SESSION --no-replay    # at once: later updates too
        afterwit forget --adapter key:laptop
    """
    from contextlib import suppress

    from afterwit.errors import SettingError, TurnNotFound
    from afterwit.home.forget import forget_adapter, forget_session
    from afterwit.printing.names import session_named

    if (session is None) == (adapter is None):
        raise SettingError("name a session, or an adapter with --adapter")
    if session is None:
        print(forget_adapter(*loaded(home, config), adapter or ""))
        return
    with store_of(home) as store, suppress(TurnNotFound):  # its content may be deleted already
        session = session_named(store, session)
    print(forget_session(*loaded(home, config), session, replay=replay))


lessons_app = typer.Typer(cls=Group, invoke_without_command=True)
Number = Annotated[int, typer.Argument(min=0, max=2**63 - 1, help="A lesson's number.")]


@lessons_app.callback()
def lessons(context: typer.Context, limit: Limit = None, json_: Json = False, home: Home = None) -> None:
    """List the lessons: your corrections, how often you gave each, and how far it is learned.

    afterwit lessons
    afterwit lessons drop 3 --undo
    """
    if context.invoked_subcommand is None:
        from afterwit.printing.lessons import print_lessons

        print_lessons(home, limit=listed(limit, json=json_), json=json_)


@lessons_app.command(cls=Command)
def drop(
    number: Number,
    undo: Annotated[
        bool, typer.Option("--undo", help="Also forget all answers that practised it, alone or with others.")
    ] = False,
    home: Home = None,
    config: Config = None,
) -> None:
    """Never practise a lesson again. Its corrections still teach once.

    afterwit lessons drop 3
    afterwit lessons drop 3 --undo    # the weights forget it too
    """
    from afterwit.practice import table

    back = f"`afterwit lessons accept {number}` takes it up again"
    if undo:
        from afterwit.home.forget import forget_practice

        said = forget_practice(*loaded(home, config), number)
        print(f"lesson {number} is dropped; {said}; {back}")
        return
    with store_of(home) as store:
        table.drop(store, number, now=time.time())
    print(f"lesson {number} is dropped: it is not practised any more; {back}")


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
    """Practise a lesson on other prompts too, or at all if it was dropped or waits for you.

    afterwit lessons accept 3
    """
    from afterwit.practice import table

    with store_of(home) as store:
        dropped = store.lesson(number).dropped is not None
        table.accept(store, number)
    again = "again, " if dropped else ""
    print(f"lesson {number} is practised {again}on other prompts of its kind too")
