"""A server that answers as SGLang 0.5.23 does, from answers that were recorded of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from afterwit.chat_format.folder import tokenizer_of

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
INFO = {
    "version": "0.5.23",
    "dtype": "float32",
    "dp_size": 1,
    "enable_lora": True,
    "enable_priority_scheduling": True,
    "incremental_streaming_output": True,
    "lora_target_modules": MODULES,
    "max_req_input_len": 2042,
    "schedule_low_priority_values_first": False,
}
"""The fields of /server_info that are read."""
LOST = "Got LoRA adapter that has never been loaded: {}\nAll loaded adapters: dict_keys([])."


def event(*rows: tuple[float, int], end: Any = None, sampled: Sequence[float] = ()) -> dict[str, Any]:
    """One event of a streamed response: (log-prob, id) pairs, and why it ended."""
    meta: dict[str, Any] = {
        "finish_reason": end,
        "weight_version": "default",
        "output_token_logprobs": [[*row, None] for row in rows],
    }
    if sampled:
        meta["output_token_sampling_logprobs"] = list(sampled)
    return {"text": "", "output_ids": [row[1] for row in rows], "meta_info": meta}


class Recorded:
    """`asked` holds the bodies that came to each path, in order; the other fields are what it answers."""

    def __init__(self, model: Path, **info: Any) -> None:
        self.info = INFO | {"model_path": str(model), "tokenizer_path": str(model)} | info
        self.tokenizer = tokenizer_of(model)
        self.label = "default"
        self.raw = False
        """Log-probs are the model's own, whatever the temperature."""
        self.events: list[dict[str, Any]] = []
        self.stays_open = False
        """The streamed response does not end after its events."""
        self.adapters: set[str] = set()
        self.refuses: str | None = None
        """Its error for new weights."""
        self.unfit: set[str] = set()
        """Paths that it answers with 503."""
        self.scored: list[list[Any]] = []
        self.tops: list[Any] = []
        self.asked: dict[str, list[Any]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        body = orjson.loads(data) if (data := await request.read()) else {}
        self.asked.setdefault(path, []).append(body)
        if path in self.unfit:
            return web.Response(status=503)
        if path == "/generate":
            return await self._generate(request, body)
        if path in ("/load_lora_adapter", "/update_weights_from_disk") and self.refuses:
            said = {"success": False, "message": self.refuses, "error_message": self.refuses}
            return web.json_response(said, status=400)
        if path == "/load_lora_adapter":
            self.adapters.add(body["lora_name"])
        answers = {
            "/server_info": self.info,
            "/model_info": {"tokenizer_path": self.info["tokenizer_path"], "weight_version": self.label},
            "/tokenize": {"tokens": self._tokens(body)},
        }
        return web.json_response(answers.get(path, {"success": True}))

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        ids: list[int] = self.tokenizer.encode(body.get("prompt", ""), add_special_tokens=False).ids
        return ids

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        lost = body.get("lora_path") not in (None, *self.adapters)
        words = {"error": {"message": LOST.format(body.get("lora_path")), "code": 400}}
        if not body.get("stream"):
            return web.json_response(words if lost else self._whole(body), status=400 if lost else 200)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for each in [words] if lost else self.events:
            await response.write(b"data: " + orjson.dumps(each) + b"\n\n")
        if self.stays_open:
            await asyncio.sleep(3600)  # cancelled when the client goes
        await response.write(b"data: [DONE]\n\n")
        return response

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        if "top_logprobs_num" in body and "logprob_start_len" in body and not self.tops:
            return {"meta_info": self._of_prompt(body)}
        heat = 1.0 if self.raw else body["sampling_params"].get("temperature", 1.0)
        top = [[-place / heat, place, None] for place in range(5)]
        return {
            "meta_info": {
                "input_token_logprobs": self.scored,
                "input_top_logprobs": self.tops,
                "output_top_logprobs": [top],
            }
        }

    def _of_prompt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Every id of the prompt is less likely than those below `top_logprobs_num`, everywhere."""
        ids = body["input_ids"][body["logprob_start_len"] :]
        top = [[-1.0 - token, token, None] for token in range(body["top_logprobs_num"])]
        return {
            "input_token_logprobs": [[None, ids[0], None], *([-9.0, token, None] for token in ids[1:])],
            "input_top_logprobs": [None, *([top] * (len(ids) - 1))],
        }


@asynccontextmanager
async def listening(recorded: Recorded) -> AsyncIterator[str]:
    """Its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", recorded.answer)
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("/")).rstrip("/")
    finally:
        await server.close()
