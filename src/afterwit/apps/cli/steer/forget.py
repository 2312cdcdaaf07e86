"""`afterwit forget`: a conversation goes, from the store and from the weights."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Config, Home


def forget(
    session: Annotated[str, typer.Argument(help="A session's id; `afterwit show TURN` names it.")],
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
    from afterwit.apps.config import home_of, load
    from afterwit.apps.forget import forget as forgotten

    folder = home_of(home)
    print(forgotten(load(home=folder, file=config), folder, session, replay=replay))
