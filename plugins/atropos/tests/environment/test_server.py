"""One APIServer over any engine: ids as they were sampled, and a log-prob for each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Generate
from afterwit.errors import EngineUnavailable, SettingError
from afterwit_atropos.environment.model_server import EngineServer
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(tiny_qwen3(tmp_path_factory.mktemp("model")))


@pytest.fixture
def server(renderer: Renderer) -> EngineServer:
    def script(request: Generate) -> Sequence[int]:
        return renderer.encode("Yes.")

    engine = FakeEngine(script, end_id=min(renderer.end_ids), vocabulary=renderer.vocabulary, together=8)
    found = EngineServer(APIServerConfig(health_check=False, model_name="tiny"))
    found.opened(engine, renderer)
    return found


async def test_each_response_comes_with_its_ids_and_log_probs(
    server: EngineServer, renderer: Renderer
) -> None:
    prompt, ids, logprobs, finishes = await server.tokens_and_logprobs_completion(
        prompt="Is it?", n=2, max_tokens=10
    )
    assert prompt == list(renderer.encode("Is it?"))
    assert ids == [[*renderer.encode("Yes."), min(renderer.end_ids)]] * 2
    assert [len(values) for values in logprobs] == [len(each) for each in ids]
    assert finishes == ["stop", "stop"]


async def test_ids_go_in_as_they_are(server: EngineServer) -> None:
    prompt, *_ = await server.tokens_and_logprobs_completion(input_ids=[5, 6, 7], max_tokens=10)
    assert prompt == [5, 6, 7]


async def test_each_id_of_a_prompt_has_its_likeliest_ids(server: EngineServer) -> None:
    found = await server.get_logprobs(input_ids=[5, 6, 7], top_k=3)
    assert found["prompt_tokens"] == [5, 6, 7]
    assert [len(row) for row in found["prompt_topk_token_ids"]] == [0, 3, 3]
    assert [len(row) for row in found["prompt_topk_logprobs"]] == [0, 3, 3]


async def test_a_prompt_of_one_id_has_one_empty_row(server: EngineServer) -> None:
    found = await server.get_logprobs(input_ids=[5], top_k=3)
    assert found == {
        "prompt_tokens": [5],
        "prompt_topk_token_ids": [[]],
        "prompt_topk_logprobs": [[]],
    }


async def test_chats_and_completions_are_the_librarys_types(server: EngineServer) -> None:
    chat = await server.chat_completion(messages=[{"role": "user", "content": "Is it?"}], max_tokens=10)
    assert chat.choices[0].message.content == "Yes."
    assert (await server.completion(prompt="Is it?", max_tokens=10)).choices[0].text.startswith("Yes.")


async def test_stop_strings_are_refused_where_tokens_are_asked_for(server: EngineServer) -> None:
    with pytest.raises(SettingError, match="stop strings cut text"):
        await server._tokens_and_logprobs_completion_wrapper(prompt="Is it?", stop="Y")


async def test_a_server_that_is_not_open_says_so() -> None:
    closed = EngineServer(APIServerConfig())
    for what in ("engine", "renderer"):
        with pytest.raises(EngineUnavailable, match="not open yet"):
            getattr(closed, what)
