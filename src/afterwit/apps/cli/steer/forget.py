"""`afterwit forget`: a conversation goes, from the store and from the weights."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Config, Home


def forget(
    session: Annotated[str, typer.Argument(help="A session's id; or a turn's, for its session; or `last`.")],
    replay: Annotated[
        bool, typer.Option(help="Run later updates again without it; else they are taken back too.")
    ] = True,
    home: Home = None,
    config: Config = None,
) -> None:
    """Forget a conversation: delete what was said, and make the weights as if it had not been trained on.

    The weights of all versions that hold a turn of it are deleted. Killed at any moment it is done, or not
    done, or finished by the next learner that starts.
    """
    from contextlib import suppress

    from afterwit.apps.build import store_of_home
    from afterwit.apps.cli.steer.named import session_named
    from afterwit.apps.config import home_of, load
    from afterwit.apps.forget import forget as forgotten
    from afterwit.core.errors import TurnNotFound

    folder = home_of(home)
    with store_of_home(home) as store, suppress(TurnNotFound):  # what was said in it may be gone already
        session = session_named(store, session)
    print(forgotten(load(home=folder, file=config), folder, session, replay=replay))
