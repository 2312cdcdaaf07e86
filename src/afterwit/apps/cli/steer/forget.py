"""`afterwit forget`: a conversation goes, from the store and from the weights."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Config, Home


def forget(
    session: Annotated[
        str | None, typer.Argument(help="A session's id; or a turn's, for its session; or `last`.")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(help="In place of a session, everything that an adapter learned from: `key:NAME`."),
    ] = None,
    replay: Annotated[
        bool, typer.Option(help="Run later updates again without it; else they are taken back too.")
    ] = True,
    home: Home = None,
    config: Config = None,
) -> None:
    """Forget a conversation: delete what was said, and make the weights as if it had not been trained on.

    With `--adapter` all conversations in which an adapter of somebody's own answered: it is the base again.

    The weights of all versions that hold a turn of it are deleted. Killed at any moment it is done, or not
    done, or finished by the next learner that starts.
    """
    from contextlib import suppress

    from afterwit.apps.build import store_of_home
    from afterwit.apps.cli.steer.named import session_named
    from afterwit.apps.config import home_of, load
    from afterwit.apps.forget import forget as forgotten
    from afterwit.apps.forget import forget_adapter
    from afterwit.core.errors import SettingError, TurnNotFound

    folder = home_of(home)
    if (session is None) == (adapter is None):
        raise SettingError("name a session, or an adapter with --adapter")
    if session is None:
        print(forget_adapter(load(home=folder, file=config), folder, adapter or ""))
        return
    with store_of_home(home) as store, suppress(TurnNotFound):  # what was said in it may be gone already
        session = session_named(store, session)
    print(forgotten(load(home=folder, file=config), folder, session, replay=replay))
