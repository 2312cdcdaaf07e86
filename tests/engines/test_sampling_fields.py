"""Every sampling setting reaches every engine: one that is forgotten would be ignored without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from afterwit.engines import embedded
from afterwit.engines.server.server import SampleRequest
from afterwit.engines.sglang.server import params_of as asked_of_sglang
from afterwit.engines.vllm.server import params_of as asked_of_vllm
from afterwit.turn import Sampling

Params = Callable[[SampleRequest], dict[str, Any]]

PLAIN = Sampling(max_tokens=9, temperature=0.7)
OTHERS: dict[str, Any] = {
    "max_tokens": 8,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "seed": 4,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.5,
    "logit_bias": ((1, 2.0),),
}
"""Another value of each setting that a server gets."""
ENDS = {"stop", "stop_ids", "ignore_eos"}
"""The gateway finds stop strings in the text; a server gets the other two as the ask's `end_ids`."""
OURS = {"limit_asked"}
"""Who set the limit: no engine samples by it."""
SERVERS: dict[str, Params] = {
    "vllm": asked_of_vllm,
    "sglang": lambda ask: asked_of_sglang(ask, frozenset()),
}


def an_ask(sampling: Sampling) -> SampleRequest:
    return SampleRequest(
        prompt_ids=(5,), sampling=sampling, end_ids=frozenset({9}), weights=None, background=False
    )


def test_another_value_of_every_setting_is_tried() -> None:
    assert OTHERS.keys() | ENDS | OURS == {field.name for field in fields(Sampling)}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", OTHERS)
def test_a_server_is_told_of_every_setting(server: str, name: str) -> None:
    other = replace(PLAIN, **{name: OTHERS[name]})
    assert SERVERS[server](an_ask(other)) != SERVERS[server](an_ask(PLAIN))


@pytest.mark.parametrize("name", [*OTHERS, *sorted(ENDS - {"stop"})])
def test_the_embedded_engine_reads_every_setting(name: str) -> None:
    sources = [path.read_text() for path in Path(embedded.__path__[0]).rglob("*.py")]
    assert any(re.search(rf"\bsampling\.{name}\b", source) for source in sources)
