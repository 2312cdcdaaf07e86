"""`afterwit keys`: who may call, and for what."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from afterwit.cli.options import Home, named, store_of

app = typer.Typer(
    help="API keys: who may call, and for what. Without any key only this machine may call.",
    no_args_is_help=True,
)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="A name to recognise the key by.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="chat: call the model. teach: its turns may train. read: health, metrics, and on the page "
            "all conversations. admin: everything, and orders. Repeatable. Default: chat and teach."
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Make a key and print it once; only its hash is stored."""
    from afterwit.gateway.auth import Permission, check_name, hash_key, new_key

    scopes = {named(Permission, one, "--scope") for one in scope or ("chat", "teach")}
    check_name(name)
    key = new_key()
    with store_of(home, make=True) as store:
        store.add_key(name, scopes, hash_key(key), now=time.time())
    print(key)


@app.command("list")
def list_keys(home: Home = None) -> None:
    """Show the keys' names and scopes."""
    from rich.table import Table

    from afterwit.printing.terminal import Terminal, moment

    table = Table("name", "scopes", "made", "revoked", box=None, pad_edge=False)
    with store_of(home) as store:
        for key in store.keys():  # noqa: SIM118 - API keys, not a mapping's
            table.add_row(key.name, ", ".join(sorted(key.scopes)), moment(key.created), moment(key.revoked))
    Terminal().print(table)


@app.command()
def revoke(name: Annotated[str, typer.Argument(help="The key's name.")], home: Home = None) -> None:
    """Refuse a key from now on."""

    with store_of(home) as store:
        store.revoke_key(name, now=time.time())
        print(f"the key {name!r} is refused from now on")
        if all(key.revoked is not None for key in store.keys()):  # noqa: SIM118 - API keys, not a mapping's
            print("No key is left: this machine may now call without one, and no other machine may call.")


@app.command()
def rotate(name: Annotated[str, typer.Argument(help="The key's name.")], home: Home = None) -> None:
    """Replace a key by a new one with the same name and scopes, and print it once.

    The old one is refused. Sessions belong to the name, so they go on.
    """
    from afterwit.errors import SettingError
    from afterwit.gateway.auth import hash_key, new_key

    key = new_key()
    with store_of(home) as store, store.transaction():
        old = next((old for old in store.keys() if old.name == name), None)  # noqa: SIM118 - as above
        if old is None:
            raise SettingError(f"there is no key {name!r}")
        if old.revoked is not None:
            raise SettingError(f"the key {name!r} is revoked: `afterwit keys add {name}` makes a new one")
        now = time.time()
        store.revoke_key(name, now=now)
        store.add_key(name, old.scopes, hash_key(key), now=now)
    print(key)
