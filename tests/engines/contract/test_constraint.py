"""Schemas and the alternatives of a token in every engine."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from tokenizers import Tokenizer

from afterwit.engines.port import Constraint, Engine
from afterwit.errors import RequestRefused
from tests.engines.contract.factories import Models
from tests.engines.talk import Said, ask, say
from tests.products import some

PROMPT = range(3, 40)
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["milk", "eggs"]}, "count": {"type": "integer", "maximum": 99}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}


def text(folder: Path, said: Said) -> str:
    return Tokenizer.from_file(str(folder / "tokenizer.json")).decode(said.ids)


@pytest.fixture
def constrains(engine: Engine) -> None:
    if not engine.capabilities.constraint:
        pytest.skip("this engine keeps to no schema")


@pytest.mark.usefixtures("constrains")
@pytest.mark.parametrize("seed", some(3, range(3)))
async def test_a_response_fits_its_schema_and_its_tokens_are_flagged(
    engine: Engine, models: Models, seed: int
) -> None:
    constraint = Constraint(schema=json.dumps(SCHEMA))
    said = await say(engine, ask(PROMPT, constraint=constraint, max_tokens=400, seed=seed))
    assert said.ended == "stop"
    jsonschema_rs.validate(SCHEMA, json.loads(text(models.base, said)))
    assert all(said.forced)


@pytest.mark.usefixtures("constrains")
async def test_a_constraint_begins_behind_the_forced_prefix(engine: Engine, models: Models) -> None:
    constraint = Constraint(schema='{"const": 7}')
    said = await say(engine, ask(PROMPT, constraint=constraint, forced=(400,)))
    assert said.ids[0] == 400
    assert text(models.base, said).endswith("7")


@pytest.mark.usefixtures("constrains")
@pytest.mark.parametrize("schema", ['{"type": "cheese"}', '{"$ref": "https://example.com/a"}'])
async def test_a_schema_that_cannot_be_followed_is_refused(engine: Engine, schema: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        await say(engine, ask(PROMPT, constraint=Constraint(schema=schema)))
    assert refused.value.field == "constraint"


async def test_alternatives_are_told_to_those_who_ask(engine: Engine) -> None:
    count = min(3, engine.capabilities.top_logprobs)
    if not count:
        pytest.skip("this engine tells no alternatives")
    said = await say(engine, ask(PROMPT, top_logprobs=count, max_tokens=6, temperature=0.5, ignore_eos=True))
    assert len(said.top_logprobs) == 6
    for token, top in zip(said.ids, said.top_logprobs, strict=True):
        assert len(top.ids) == len(top.logprobs) == count
        assert list(top.logprobs) == sorted(top.logprobs, reverse=True)
        assert top.sampled <= top.logprobs[0] + 1e-6
        if token in top.ids:
            assert top.logprobs[top.ids.index(token)] == pytest.approx(top.sampled, abs=1e-5)
    assert (await say(engine, ask(PROMPT))).top_logprobs == ()
