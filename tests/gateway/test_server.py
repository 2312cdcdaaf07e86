"""The socket: start and stop."""

from __future__ import annotations

import asyncio
import json
import shutil

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.errors import SettingError
from afterwit.gateway.http_server import Listener, bound_socket
from tests.gateway.serving import USER, serving


def test_the_error_for_a_port_in_use_names_the_address_and_the_flag():
    with bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=rf"127.0.0.1:{port} is in use already.*--port"):
            bound_socket("127.0.0.1", port)


async def test_a_stop_waits_for_the_running_stream_and_closes_the_port(tmp_path, renderer):
    async with serving(tmp_path, renderer) as gateway:
        listener = Listener(gateway.app, bound_socket("127.0.0.1", 0))
        await listener.start()
        gateway.engine.pause_after = 1
        async with httpx.AsyncClient(base_url=listener.url, verify=False) as http:
            body = {"model": "tiny", "messages": USER, "stream": True}
            running = asyncio.ensure_future(http.post("/chat/completions", json=body))
            await gateway.engine.paused.wait()
            stopping = asyncio.ensure_future(listener.stop(drain_s=10.0))
            gateway.engine.resume.set()
            assert (await running).text.endswith("data: [DONE]\n\n")
            await stopping
            with pytest.raises(httpx.ConnectError):
                await http.get("/models")


async def test_a_stream_that_outlasts_the_drain_ends_with_finish_reason_length_and_is_recorded(
    tmp_path, renderer
):
    async with serving(tmp_path, renderer) as gateway:
        listener = Listener(gateway.app, bound_socket("127.0.0.1", 0))
        await listener.start()
        gateway.engine.pause_after = 1
        async with httpx.AsyncClient(base_url=listener.url, verify=False) as http:
            body = {"model": "tiny", "messages": USER, "stream": True}
            running = asyncio.ensure_future(http.post("/chat/completions", json=body))
            await gateway.engine.paused.wait()
            await listener.stop(drain_s=0.01)
            assert '"finish_reason":"length"' in (await running).text
        (record,) = await gateway.records()
        assert (record.turn.finish, record.delivered) == ("length", True)


async def test_a_model_whose_prompts_are_tokenised_whole_is_said_once(tmp_path, model, caplog):
    folder = shutil.copytree(model, tmp_path / "plain")
    for file in ("chat_template.jinja", "chat_template.json"):
        (folder / file).unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    spoken = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    config |= {"chat_template": spoken, "eos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    async with serving(tmp_path, Renderer.load(folder)) as gateway:
        for _ in range(2):
            assert (await gateway.ask(USER)).status_code == 200
    assert caplog.text.count("tokenised whole") == 1
