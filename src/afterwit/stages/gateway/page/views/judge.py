"""Whether the judge can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from afterwit.core.judge_checks import warnings
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.views.view import Wanted
from afterwit.stages.judge_checks import known_of_judge, report_of
from afterwit.store import Store


def view(request: Request, gateway: Gateway) -> Wanted:
    """Every check, over the newest judged turns."""

    def read(store: Store) -> Mapping[str, Any]:
        report = report_of(store)
        return {"known": list(known_of_judge(report)), "wrong": list(warnings(report)), "turns": report.turns}

    return Wanted(template="judge.html", read=read)
