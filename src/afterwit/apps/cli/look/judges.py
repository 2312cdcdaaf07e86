"""`afterwit judges`: whether the judge can be trusted."""

from __future__ import annotations

import sys

from afterwit.apps.cli.options import Home, Json


def judges(json_: Json = False, home: Home = None) -> None:
    """Show whether the judge can be trusted: its votes, against each other and against what people said.

    Intervals hold the true value in 95 of 100 cases.
    """
    from dataclasses import asdict

    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.printing.terminal import Terminal
    from afterwit.core.judge_checks import warnings
    from afterwit.stages.judge_checks import known_of_judge, report_of

    with store_of_home(home) as store:
        report = report_of(store)
    if json_:
        sys.stdout.buffer.write(orjson.dumps(asdict(report) | {"warnings": list(warnings(report))}) + b"\n")
        return
    console = Terminal()
    for name, words in known_of_judge(report):
        console.say(f"{name:<28} {words}")
    for words in warnings(report):
        console.say(f"! {words}")
