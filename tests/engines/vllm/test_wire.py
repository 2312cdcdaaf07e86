"""vLLM's wire: the requests, and the meaning of recorded answers."""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from afterwit.engines.port import TopLogprobs
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.server import CUT, SampleRequest, StreamChunk, joined
from afterwit.engines.vllm.server import GENERATE, VllmServer, inspect, prompt_logprobs
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused, SettingError
from afterwit.turn import Sampling
from tests.engines.vllm.recorded import Recorded, chunk, golden, listening


@pytest.fixture
def adapter(adapters: list[Path], tmp_path: Path) -> Path:
    """In a folder of its own."""
    return Path(shutil.copytree(adapters[0], tmp_path / "versions" / "000001"))


SCORED = orjson.loads(golden("generate"))["prompt_token_ids"]


def an_ask(*, weights: str | None = None, background: bool = False, **sampling: object) -> SampleRequest:
    fields = {"max_tokens": 2} | sampling
    return SampleRequest(
        prompt_ids=(5, 6),
        sampling=Sampling(**fields),
        end_ids=frozenset({9, 8}),
        weights=weights,
        background=background,
    )


@asynccontextmanager
async def over(recorded: Recorded, *, labels: bool = False) -> AsyncIterator[VllmServer]:
    async with listening(recorded) as url:
        client = ServerClient(url, key=None, silence_s=10)
        yield VllmServer(client, model="tiny", root=recorded.model, priorities=True, labels=labels)
        await client.close()


async def pieces(recorded: Recorded, ask: SampleRequest) -> list[StreamChunk]:
    async with over(recorded) as server, aclosing(server.sample(ask)) as stream:
        return [piece async for piece in stream]


async def test_a_recorded_stream_is_ids_with_their_log_probs_and_an_end(qwen: Path) -> None:
    (whole,) = joined(await pieces(Recorded(qwen), an_ask()))
    logprobs = (-8.096431732177734, -6.810459136962891)
    assert whole == StreamChunk(ids=(493, 2851), logprobs=logprobs, ended="length")


async def test_recorded_prompt_log_probs_are_those_of_the_ids_that_followed(qwen: Path) -> None:
    async with over(Recorded(qwen)) as server:
        scored = await server.score(SCORED, None)
    assert scored == [-8.777119636535645, -9.874124526977539, -8.629008293151855, -7.2454423904418945]


async def test_the_server_is_asked_for_ids_and_its_own_end_ids_are_switched_off(qwen: Path) -> None:
    recorded = Recorded(qwen)
    await pieces(recorded, an_ask(temperature=0.7, top_p=0.9, top_k=5, seed=3, logit_bias=((4, 1.5),)))
    (body,) = recorded.bodies(GENERATE)
    assert body["model"] == "tiny"
    assert body["token_ids"] == [5, 6]
    assert body["stream"] is True
    params = body["sampling_params"]
    assert params["stop_token_ids"] == [8, 9]
    assert params["ignore_eos"] is True
    assert params["logit_bias"] == {"4": 1.5}
    assert [params[name] for name in ("temperature", "top_p", "top_k", "seed", "logprobs", "max_tokens")] == [
        0.7,
        0.9,
        5,
        3,
        0,
        2,
    ]


async def test_a_low_temperature_takes_the_mode_of_the_whole_distribution(qwen: Path) -> None:
    recorded = Recorded(qwen)
    await pieces(recorded, an_ask(temperature=0.01, top_p=0.5, top_k=3, min_p=0.1))
    params = recorded.bodies(GENERATE)[0]["sampling_params"]
    assert [params[name] for name in ("temperature", "top_p", "top_k", "min_p")] == [0.0, 1.0, 0, 0.0]
    assert "seed" not in params


async def test_what_is_in_the_background_yields(qwen: Path) -> None:
    recorded = Recorded(qwen)
    await pieces(recorded, an_ask(background=True))
    await pieces(recorded, an_ask())
    assert [body.get("priority") for body in recorded.bodies(GENERATE)] == [1, None]


async def test_an_end_that_is_not_the_models_cuts_the_response(qwen: Path) -> None:
    recorded = Recorded(qwen)
    recorded.stream = chunk((7, -0.5)) + chunk(end="abort") + b"data: [DONE]\n\n"
    (whole,) = joined(await pieces(recorded, an_ask()))
    assert (whole.ids, whole.ended) == ((7,), CUT)


@pytest.mark.parametrize(("details", "cached"), [({"cached_tokens": 1}, 1), (None, None)])
async def test_the_cached_tokens_of_a_stream_are_those_of_the_usage_that_follows_its_end(
    qwen: Path, details: dict[str, int] | None, cached: int | None
) -> None:
    recorded = Recorded(qwen)
    usage = {"prompt_tokens": 2, "prompt_tokens_details": details}
    after = b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\n"
    recorded.stream = chunk((7, -0.5)) + chunk((8, -0.5), end="length") + after + b"data: [DONE]\n\n"
    found = await pieces(recorded, an_ask())
    (whole,) = joined(found)
    assert (whole.ids, whole.ended, found[-1].cached) == ((7, 8), "length", cached)
    assert recorded.bodies(GENERATE)[0]["stream_options"] == {"include_usage": True}


async def test_an_error_in_the_middle_of_a_stream_is_an_error(qwen: Path) -> None:
    recorded = Recorded(qwen)
    recorded.stream = chunk((7, -0.5)) + b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    with pytest.raises(EngineError, match="out of memory"):
        await pieces(recorded, an_ask())


async def test_an_adapter_that_the_server_forgot_means_that_it_was_started_anew(qwen: Path) -> None:
    with pytest.raises(EngineUnavailable, match="no longer has the adapter gone"):
        await pieces(Recorded(qwen), an_ask(weights="gone"))
    async with over(Recorded(qwen)) as server:
        with pytest.raises(EngineUnavailable, match="no longer has the adapter gone"):
            await server.score(SCORED, "gone")


async def test_an_adapter_is_loaded_by_its_folder_and_asked_by_its_name(qwen: Path, adapter: Path) -> None:
    recorded = Recorded(qwen)
    async with over(recorded) as server:
        await server.load_adapter("one", adapter)
        await server.score(SCORED, "one")
    assert recorded.bodies("/v1/load_lora_adapter")[-1] == {"lora_name": "one", "lora_path": str(adapter)}
    assert recorded.bodies(GENERATE)[0]["model"] == "one"


async def test_the_base_is_requested_as_an_adapter_that_is_scaled_to_nothing(
    qwen: Path, adapter: Path
) -> None:
    recorded = Recorded(qwen)
    async with over(recorded) as server:
        await server.score(SCORED, None)
        await server.load_adapter("one", adapter)
        await server.load_adapter("two", adapter)
        await server.score(SCORED, None)
        zeros, *_ = loaded = recorded.bodies("/v1/load_lora_adapter")
        config = orjson.loads((Path(zeros["lora_path"]) / "adapter_config.json").read_bytes())
        assert config["lora_alpha"] == 0
        await server.close()
    assert [body["lora_name"] for body in loaded] == [zeros["lora_name"], "one", "two"]
    assert [body["model"] for body in recorded.bodies(GENERATE)] == ["tiny", zeros["lora_name"]]
    assert recorded.bodies("/v1/unload_lora_adapter") == [{"lora_name": zeros["lora_name"]}]
    assert list(adapter.parent.glob(".*")) == [], "nothing is left on the disk"


async def test_a_restarted_server_gets_it_again(qwen: Path, adapter: Path) -> None:
    recorded = Recorded(qwen)
    async with over(recorded) as server:
        await server.load_adapter("one", adapter)
        await server.check()
        recorded.adapters.clear()
        with pytest.raises(EngineUnavailable, match="no longer has the adapter afterwit-base-"):
            await server.score(SCORED, None)
        await server.check()
        await server.score(SCORED, None)
        await server.load_adapter("one", adapter)
        await server.score(SCORED, None)
        await server.close()
    names = [body["lora_name"] for body in recorded.bodies("/v1/load_lora_adapter")]
    assert [body["model"] for body in recorded.bodies(GENERATE)] == [names[0], "tiny", names[2]]
    assert names[0] != names[2]


async def test_another_process_finds_it_by_its_name(qwen: Path, adapter: Path) -> None:
    recorded = Recorded(qwen)
    async with over(recorded) as server:
        await server.load_adapter("one", adapter)
        async with listening(recorded) as url:
            client = ServerClient(url, key=None, silence_s=10)
            fit = await inspect(client, qwen, None, any_weights=True)
            await fit.server.score(SCORED, None)
            await client.close()
        await server.close()
    assert recorded.bodies(GENERATE)[-1]["model"].startswith("afterwit-base-")


async def test_a_schema_is_asked_for_from_the_first_id_on_and_a_refused_one_is_the_clients_fault(
    qwen: Path,
) -> None:
    recorded = Recorded(qwen)
    asked = replace(an_ask(), schema='{"const": 7}')
    await pieces(recorded, asked)
    (body,) = recorded.bodies(GENERATE)
    assert (body["sampling_params"]["structured_outputs"], body["reasoning_ended"]) == (
        {"json": '{"const": 7}'},
        True,
    )
    recorded.stream = b'data: {"error": {"message": "Grammar error: no such type", "code": 400}}\n\n'
    with pytest.raises(RequestRefused, match="no such type"):
        await pieces(recorded, asked)
    with pytest.raises(EngineError, match="in the middle"):
        await pieces(recorded, an_ask())


async def test_alternatives_are_the_likeliest_with_what_was_sampled(qwen: Path) -> None:
    recorded = Recorded(qwen)
    likely = [(7, -0.25), (9, -1.5), (8, -9999.0)]
    content = {
        "token_id": 9,
        "logprob": -1.5,
        "top_logprobs": [{"token_id": index, "logprob": value} for index, value in likely],
    }
    choice = {"token_ids": [9], "logprobs": {"content": [content]}, "finish_reason": "length"}
    recorded.stream = b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n"
    (piece,) = await pieces(recorded, replace(an_ask(), top=3))
    assert piece.tops == (TopLogprobs(-1.5, (7, 9, 8), (-0.25, -1.5, -math.inf)),)
    assert recorded.bodies(GENERATE)[0]["sampling_params"]["logprobs"] == 3


async def test_a_refusal_of_new_weights_has_the_servers_words(qwen: Path, adapter: Path) -> None:
    recorded = Recorded(qwen)
    recorded.refuses = True
    async with over(recorded) as server:
        with pytest.raises(EngineError, match=rf"{adapter} does not fit.*No adapter found"):
            await server.load_adapter("one", adapter)
        with pytest.raises(EngineError, match=r"do not fit the served model.*shapes differ"):
            await server.load_weights(qwen, "afterwit-1")
    assert recorded.asked[-1][0] == "/resume", "the server goes on"


async def test_whole_weights_come_in_while_the_server_stands_still_and_its_caches_go(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with over(recorded) as server:
        await server.load_weights(qwen, "afterwit-1")
    assert recorded.asked == [
        ("/pause", {}),
        ("/collective_rpc", {"method": "afterwit_load", "args": [[str(qwen / "model.safetensors")]]}),
        ("/reset_prefix_cache", {}),
        ("/update_weight_version", {"new_version": "afterwit-1"}),
        ("/resume", {}),
    ]


async def test_a_server_that_now_serves_another_model_is_not_the_one_it_was(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with over(recorded, labels=True) as server:
        recorded.label = "afterwit-3"
        assert await server.check() == "afterwit-3"
        recorded.model = "/models/other"
        with pytest.raises(SettingError, match="now serves another model: /models/other"):
            await server.check()


async def test_recorded_places_hold_the_likeliest_ids_and_the_log_prob_of_the_ids_that_followed(
    qwen: Path,
) -> None:
    async with over(Recorded(qwen)) as server:
        first, last = await server.top_logprobs(SCORED, None, first=3, top=2)
    assert first == (-8.629008293151855, (2193, 206), (-6.392471790313721, -6.557168483734131))
    assert last == (-7.2454423904418945, (908, 2125), (-5.9152326583862305, -6.48300838470459))


async def test_places_are_asked_for_by_the_adapters_name_and_to_the_width_that_is_told(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with over(recorded) as server:
        with pytest.raises(EngineUnavailable, match="no longer has the adapter gone"):
            await server.top_logprobs(SCORED, "gone", first=3, top=7)
    assert recorded.bodies(GENERATE)[0]["sampling_params"]["prompt_logprobs"] == 7


def test_what_stands_for_no_probability_is_read_as_none() -> None:
    row = {"5": {"logprob": -9999.0}, "6": {"logprob": -0.5}}
    assert prompt_logprobs(5, row, 2) == (-math.inf, (6, 5), (-0.5, -math.inf))
