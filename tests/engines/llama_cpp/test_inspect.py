"""Requirements of a llama-server, and its scores: against a small server that answers as 11434 does."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from afterwit.chat_format.folder import tokenizer_of
from afterwit.config import load
from afterwit.engines.llama_cpp.server import COMPLETION, command, inspect
from afterwit.engines.model_files import LINK
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.inspect import Fit
from afterwit.engines.server.settings import LlamaCppSettings, Swap
from afterwit.errors import EngineError, SettingError
from afterwit.planning.gpus import CPU, named_gpus
from afterwit.planning.memory import KEYS_VALUES
from afterwit.planning.plan import models_of, parts_of
from afterwit.running.up import guarded
from afterwit.turn import Basis

SETTINGS = LlamaCppSettings(command=(sys.executable,), context_length=512, slots=3)
WITHIN = 77
"""An id that ends within a character: no response of one reports its log-prob."""
VOCABULARY = 457
(GPU,) = named_gpus("80GB", 1)


class Recorded:
    """The log-prob of an id is its negative tenth, after whatever prompt."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = tokenizer_of(model)
        self.props: dict[str, Any] = {
            "default_generation_settings": {"params": {"lora": []}, "n_ctx": 2048},
            "model_path": "/elsewhere/model.gguf",
        }
        self.asked: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = orjson.loads(data) if (data := await request.read()) else {}
        if request.path == COMPLETION:
            self.asked.append(body)
            return web.json_response(self._completion(body))
        ids = self.tokenizer.encode(body.get("content", ""), add_special_tokens=False).ids
        return web.json_response({"/props": self.props, "/tokenize": {"tokens": ids}}.get(request.path, {}))

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        ((token, _),) = body["logit_bias"]
        top = [{"id": index, "logprob": -index / 10} for index in range(body["n_probs"])]
        row = {"id": token, "logprob": -token / 10, "top_logprobs": top}
        return {"tokens": [token], **({} if token == WITHIN else {"completion_probabilities": [row]})}


@asynccontextmanager
async def found(
    recorded: Recorded,
    model: Path,
    swap: Swap | None = "adapters",
    *,
    settings: LlamaCppSettings = SETTINGS,
) -> AsyncIterator[Fit]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", recorded.answer)
    async with TestServer(app) as server:
        client = ServerClient(str(server.make_url("/")), key=None, silence_s=10)
        try:
            yield await inspect(client, model, swap, settings=settings)
        finally:
            await client.close()


async def test_a_fit_server_takes_adapters_and_scores_by_sampling(qwen: Path) -> None:
    async with found(Recorded(qwen), qwen) as fit:
        can = fit.capabilities
    assert (can.adapters, can.own_adapters, can.whole_weights, can.base_weights) == (True, False, False, True)
    assert can.basis is Basis.RAW
    assert can.longest_probe == 65
    assert fit.context_length == 2048


async def test_an_id_is_scored_by_a_bias_that_forces_it(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with found(recorded, qwen) as fit:
        recorded.asked.clear()
        assert await fit.server.score((5, 6, 30), None) == [-0.6, -3.0]
        assert [(body["prompt"], body["logit_bias"][0][0]) for body in recorded.asked] == [
            ([5], 6),
            ([5, 6], 30),
        ]
        (row,) = await fit.server.top_logprobs((5, 30), None, first=1, top=2)
    assert (row.sampled, row.ids, row.logprobs) == (-3.0, (0, 1), (0.0, -0.1))


async def test_an_id_within_a_character_is_scored_among_the_whole_vocabulary(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with found(recorded, qwen) as fit:
        recorded.asked.clear()
        assert await fit.server.score((5, WITHIN), None) == [-WITHIN / 10]
    assert [body["n_probs"] for body in recorded.asked] == [1, VOCABULARY]


async def test_a_server_with_an_adapter_or_of_another_kind_is_refused(qwen: Path) -> None:
    recorded = Recorded(qwen)
    recorded.props["default_generation_settings"]["params"]["lora"] = [{"id": 0, "scale": 1.0}]
    with pytest.raises(SettingError, match="without --lora"):
        async with found(recorded, qwen):
            pass
    recorded.props = {"status": "ok"}
    with pytest.raises(SettingError, match="is not llama-server"):
        async with found(recorded, qwen):
            pass


async def test_without_the_program_versions_are_refused_and_the_base_is_served(qwen: Path) -> None:
    lost = LlamaCppSettings(command=("/no/llama-server",))
    with pytest.raises(SettingError, match=r"engine\.command"):
        async with found(Recorded(qwen), qwen, settings=lost):
            pass
    async with found(Recorded(qwen), qwen, None, settings=lost) as fit:
        assert not fit.capabilities.adapters


async def test_a_process_that_does_not_start_is_an_error_with_its_words(
    qwen: Path, adapters: list[Path], tmp_path: Path
) -> None:
    model = _with_file(qwen, tmp_path)
    async with found(Recorded(qwen), model) as fit:  # Python knows no --model
        with pytest.raises(EngineError, match=r"does not fit the served model(.|\n)*unknown option"):
            await fit.server.load_adapter("afterwit-1-a", adapters[0])
        with pytest.raises(EngineError, match="ended"):
            await fit.server.score((5, 6), "afterwit-1-a")
        await fit.server.close()


def test_the_command_gives_each_response_a_context_of_its_own(qwen: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="name one in place of"):
        command(tmp_path, SETTINGS, host="127.0.0.1", port=1)
    words = command(_with_file(qwen, tmp_path), SETTINGS, host="127.0.0.1", port=1).arguments
    assert words[words.index("--ctx-size") + 1] == str(3 * 512)
    assert words[words.index("--flash-attn") + 1] == "off", "its weights are in single precision"


@pytest.mark.parametrize(
    ("pair", "words"),
    [("engine.swap=whole", "takes adapters only"), ('engine.url=["http://a:1","http://b:1"]', "is one")],
)
def test_settings_that_it_cannot_follow_are_refused(pair: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=words):
        load(home=tmp_path, pairs=["engine.kind=llama_cpp", pair], environment={})


def test_a_started_server_has_a_key_in_its_environment(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    settings = load(home=tmp_path, pairs=["engine.kind=llama_cpp"], environment={})
    engine = guarded(settings, tmp_path, environment).engine
    assert isinstance(engine, LlamaCppSettings)
    assert engine.key(environment) == environment["LLAMA_API_KEY"]
    assert len(environment["LLAMA_API_KEY"]) == 40


@pytest.mark.parametrize(("learns", "processes"), [("true", 3), ("false", 1)])
def test_a_plan_counts_a_process_for_the_base_the_version_and_its_successor(
    qwen: Path, tmp_path: Path, learns: str, processes: int
) -> None:
    """On a GPU each has a copy of the file; on a CPU they share it."""
    model = _with_file(qwen, tmp_path)
    size = (model / LINK).stat().st_size
    pairs = ["engine.kind=llama_cpp", f"model={model}", f"learner.enabled={learns}"]
    settings = load(home=tmp_path, pairs=pairs, environment={})
    models = models_of(settings, tmp_path)
    on_gpu, on_cpu = (next(parts_of(settings, models, (gpu,))) for gpu in (GPU, replace(GPU, name=CPU)))
    assert (on_gpu.memory["weights"], on_cpu.memory["weights"]) == (processes * size, size)
    assert on_gpu.memory[KEYS_VALUES] == on_cpu.memory[KEYS_VALUES]
    assert on_gpu.memory[KEYS_VALUES] % processes == 0


def _with_file(model: Path, place: Path) -> Path:
    folder = place / "model"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    if not (folder / LINK).exists():
        (folder / LINK).write_bytes(b"GGUF")
    return folder
