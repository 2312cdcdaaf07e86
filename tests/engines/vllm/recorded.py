"""A server that answers as vLLM 0.32 does, from answers that were recorded of a real one (`golden/`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from afterwit.chat_format.folder import tokenizer_of

GOLDEN = Path(__file__).with_name("golden")
TOO_WIDE = "Requested prompt logprobs of {}, which is greater than max allowed: {}"
SCALE_OUT = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."


def golden(name: str) -> bytes:
    """An answer as the server sent it."""
    return (GOLDEN / f"{name}.json").read_bytes()


def chunk(*pairs: tuple[int, float], end: str | None = None) -> bytes:
    """One event of a streamed response, in the recorded form: ids with log-probs, and why it ended."""
    content = [{"token_id": index, "logprob": logprob, "rank": 1} for index, logprob in pairs]
    choice = {
        "index": 0,
        "finish_reason": end,
        "token_ids": [index for index, _ in pairs],
        "weight_versions": None,
        "logprobs": {"content": content},
    }
    return b"data: " + orjson.dumps({"request_id": "r", "choices": [choice]}) + b"\n\n"


class Recorded:
    """`asked` holds each path and body that came, in order; the other fields are what it answers."""

    def __init__(self, model: Path, **lacks: bool) -> None:
        """Without `scale_out`, `lora`, `runtime_lora`, `dev_mode` or `extension` it lacks that."""
        self.model = str(model)
        self.tokenizer = tokenizer_of(model)
        self.has = dict.fromkeys(("scale_out", "lora", "runtime_lora", "dev_mode", "extension"), True) | lacks
        self.version = "0.32.0+cpu"
        self.raw = False
        """Log-probs are the model's own, whatever the temperature."""
        self.stream = golden("generate_stream")
        self.stays_open = False
        """The streamed response does not end after its events."""
        self.adapters: set[str] = set()
        self.refuses = False
        """It refuses weights of any kind."""
        self.label = "default"
        self.lora_config: dict[str, Any] | None = None
        self.caches = False
        self.rows: str | None = None
        """Its answer to rows of given ids; None: without the second model runner."""
        self.widest = 1000
        """Most ids that it returns for a position of a prompt."""
        self.asked: list[tuple[str, Any]] = []

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        body = orjson.loads(data) if (data := await request.read()) else {}
        self.asked.append((path, body))
        if path == "/inference/v1/generate":
            return await self._generate(request, body)
        if path == "/v1/load_lora_adapter":
            return self._load(body)
        if path in ("/pause", "/resume", "/collective_rpc", "/reset_prefix_cache", "/weight_info"):
            return self._of_dev_mode(path, body)
        if path == "/metrics":
            return web.Response(text=f'vllm:cache_config_info{{enable_prefix_caching="{self.caches}"}} 1.0')
        answers: dict[str, Any] = {
            "/health": {},
            "/version": {"version": self.version},
            "/v1/models": {
                "data": [
                    {"id": "tiny", "root": self.model, "parent": None, "max_model_len": 2048},
                    *({"id": name, "root": name, "parent": "tiny"} for name in sorted(self.adapters)),
                ]
            },
            "/tokenize": {"tokens": self._tokens(body)},
            "/v1/unload_lora_adapter": {},
        }
        if self.has["dev_mode"]:
            config = {"model_config": {"dtype": "torch.float32"}, "lora_config": self.lora_config}
            answers["/server_info"] = {"vllm_config": config}
            answers["/update_weight_version"] = {"success": True}
        if path not in answers:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response(answers[path])

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not self.has["scale_out"]:
            return _error(403, SCALE_OUT)
        if body["model"] not in ("tiny", *self.adapters):
            return _error(404, f"The model `{body['model']}` does not exist.")
        if "prompt_logprob_token_ids" in body["sampling_params"]:
            if (rows := self._rows(body)) is None:
                return _error(400, "prompt_logprob_token_ids requires the V2 model runner")
            return web.json_response({"prompt_token_id_logprobs": rows})
        if (width := body["sampling_params"].get("prompt_logprobs", 0)) > self.widest:
            return _error(400, TOO_WIDE.format(width, self.widest))
        if not body.get("stream"):
            return web.json_response(self._whole(body["token_ids"], body["sampling_params"]))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(self.stream)
        if self.stays_open:
            await asyncio.sleep(3600)  # cancelled when the client goes
        return response

    def _rows(self, body: dict[str, Any]) -> str | None:
        return self.rows

    def _whole(self, ids: list[int], params: dict[str, Any]) -> dict[str, Any]:
        """The recorded answer, with log-probs of the temperature that was asked for, and of other prompts.

        In these every id is less likely than those below `prompt_logprobs`, everywhere.
        """
        answer: dict[str, Any] = orjson.loads(golden("generate"))
        if ids != answer["prompt_token_ids"]:
            top = {
                str(likely): {"logprob": -1.0 - likely} for likely in range(params.get("prompt_logprobs", 0))
            }
            rows = [top | {str(index): {"logprob": -9.0}} for index in ids[1:]]
            answer["prompt_logprobs"] = [None, *rows]
        heat = 1.0 if self.raw else params["temperature"] or 1.0
        top = [{"token_id": place, "logprob": -place / heat, "rank": place + 1} for place in range(5)]
        answer["choices"][0]["logprobs"]["content"] = [{**top[0], "top_logprobs": top}]
        return answer

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        ids: list[int] = self.tokenizer.encode(body.get("prompt", ""), add_special_tokens=False).ids
        return ids

    def _load(self, body: dict[str, Any]) -> web.Response:
        if not self.has["runtime_lora"]:
            return web.json_response({"detail": "Not Found"}, status=404)
        if not self.has["lora"]:
            return _error(500, "Call to add_lora method failed: LoRA is not enabled")
        if self.refuses or body["lora_path"].startswith("/afterwit/"):
            said = golden("lora_bad").replace(b"/nonexistent", body["lora_path"].encode())
            return web.Response(body=said, status=404, content_type="application/json")
        self.adapters.add(body["lora_name"])
        return web.Response(text=f"Success: LoRA adapter '{body['lora_name']}' added successfully.")

    def _of_dev_mode(self, path: str, body: dict[str, Any]) -> web.Response:
        if not self.has["dev_mode"]:
            return web.json_response({"detail": "Not Found"}, status=404)
        if path == "/collective_rpc":
            if not self.has["extension"]:
                return _error(500, "Call to collective_rpc method failed: no method afterwit_ping")
            if self.refuses and body["method"] == "afterwit_load":
                return _error(500, "Call to collective_rpc method failed: shapes differ")
            return web.json_response({"results": [{"protocol": 1}]})
        said = {"weight_version": self.label} if path == "/weight_info" else {"status": "ok"}
        return web.json_response(said)


def _error(status: int, words: str) -> web.Response:
    return web.json_response({"error": {"message": words, "type": "Error", "code": status}}, status=status)


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
