"""Given ids at each place of a response: by rows in one call, or by what comes next after each beginning."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterwit.engines.server.client import ServerClient
from afterwit.engines.vllm import server as rows
from afterwit.engines.vllm.server import CALL, inspect, next_logprobs
from tests.engines.vllm.recorded import Recorded, listening

IDS = (5, 6, 7, 8, 9)
AT = [(1, 2), (3, 4), (1, 0)]
"""Of the last three of IDS."""


class Model:
    """Samples the likeliest id; `raw`: returns log-probs as they are before a bias."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self.asked: list[tuple[int, list[str]]] = []

    async def tell(self, ids: Sequence[int], params: dict[str, Any]) -> list[tuple[int, float]]:
        bias = params.get("logit_bias", {})
        self.asked.append((len(ids), list(bias)))
        logits = self.logits(len(ids))
        pushed = logits + np.array([bias.get(str(token), 0.0) for token in range(len(logits))])
        told = logprobs_of(logits if self._raw else pushed)
        ranked = sorted(range(len(logits)), key=lambda token: -told[token])[: params["logprobs"]]
        said = int(pushed.argmax())
        return list({token: float(told[token]) for token in (said, *ranked)}.items())

    @staticmethod
    def logits(place: int) -> Any:
        return -np.arange(12.0) * (1 + place / 10)


def logprobs_of(logits: Any) -> Any:
    return logits - np.log(np.exp(logits).sum())


@pytest.mark.parametrize("raw", [True, False])
async def test_an_id_that_is_not_among_the_likeliest_is_asked_for_under_a_bias(raw: bool) -> None:
    model = Model(raw=raw)
    found = await next_logprobs(model.tell, (0, 0, 0, 1, 9), first=3, top=3, raw=raw)
    for place, (at, token) in zip(found, ((3, 1), (4, 9)), strict=True):
        expected = logprobs_of(model.logits(at))
        assert place.sampled == pytest.approx(expected[token], abs=1e-9)
        assert place.ids == (0, 1, 2)
        assert place.logprobs == pytest.approx(expected[:3].tolist(), abs=1e-9)
    assert model.asked == [(4, []), (4, ["9"]), (3, [])], "the longest beginning comes first"


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_a_table_of_rows_is_read_as_numpy_writes_it(version: tuple[int, int]) -> None:
    table = np.array([[-1.0, -2.0], [-3.5, -np.inf], [-0.25, -8.0]], dtype=np.float32)
    found = rows.values_of(written(table, version), [(1, 2), (3,), (5, 6)])
    assert found == [(-1.0, -2.0), (-3.5,), (-0.25, -8.0)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (base64.b64encode(b"no table").decode(), "magic string is not correct"),
        ("float64", r"\(3, 2\) of float64, but"),
        ("short", r"\(2, 2\) of float32, but \(3, 2\)"),
        ("narrow", r"\(3, 1\) of float32, but \(3, 2\)"),
        ("flat", r"\(6,\) of float32, but \(3, 2\)"),
    ],
)
def test_any_other_table_is_refused(answer: str, said: str) -> None:
    shapes = {"short": (2, 2), "narrow": (3, 1), "flat": 6}
    made = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
    made["float64"] = np.zeros((3, 2))
    if answer in made:
        answer = written(made[answer], (1, 0))
    with pytest.raises(ValueError, match=said):
        rows.values_of(answer, AT)


async def test_a_server_with_the_second_model_runner_is_asked_once_for_all_rows(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with listening(recorded) as url:
        client = ServerClient(url, key=None, silence_s=30.0)
        assert not (await inspect(client, qwen, None)).scores_given
        recorded.rows = written(np.arange(6, dtype=np.float32).reshape(3, 2), (1, 0))
        fit = await inspect(client, qwen, None)
        assert fit.scores_given
        found = await fit.server.logprobs_at(IDS, None, first=2, at=AT)
        await client.close()
    assert found == [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)]
    asked = recorded.bodies("/inference/v1/generate")[-1]["sampling_params"]
    assert asked["prompt_logprob_token_ids"] == [list(row) for row in AT]
    assert asked["prompt_logprob_start"] == 1


async def test_a_server_that_caches_is_asked_after_each_beginning_of_a_short_response(qwen: Path) -> None:
    """One that is short compared to its prompt."""
    recorded = Recorded(qwen)
    recorded.caches = True
    ids = (*range(5, 5 + 2 * CALL), 1, 2)
    async with listening(recorded) as url:
        client = ServerClient(url, key=None, silence_s=30.0)
        fit = await inspect(client, qwen, None)
        found = await fit.server.top_logprobs(ids, None, first=2 * CALL, top=3)
        await fit.server.top_logprobs(ids[1:], None, first=2 * CALL - 1, top=3)
        await client.close()
    assert [place.ids for place in found] == [(0, 1, 2)] * 2
    lengths = [len(body["token_ids"]) for body in recorded.bodies("/inference/v1/generate")[-3:]]
    assert lengths == [2 * CALL + 1, 2 * CALL, 2 * CALL + 1]


def written(table: Any, version: tuple[int, int]) -> str:
    file = io.BytesIO()
    np.lib.format.write_array(file, table, version=version)
    return base64.b64encode(file.getvalue()).decode()
