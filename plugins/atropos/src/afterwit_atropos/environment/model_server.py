"""One `APIServer` over any engine: what the library's environments ask of a server, by exact token ids.

It speaks to a stock vLLM or SGLang server through the engine of that kind, or to the embedded engine, and
keeps what the library's own servers lose: nothing is tokenized again, no end-of-turn token is doubled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServer, APIServerConfig, ReasoningConfig
from openai.types import Completion
from openai.types.chat import ChatCompletion

from afterwit.api.serving import Engine, Generate, Renderer, Score, Scored, Step, Weights
from afterwit.api.turns import Conversation, EngineUnavailable, Message, Sampling, SettingError
from afterwit_atropos.episode import Policy

LOOK_S = 1.0

UNSET_TOKENS = 1024
"""Tokens of a response if the caller names no number."""


class EngineServer(APIServer):  # type: ignore[misc]  # an untyped library
    """The library constructs it; `opened` gives it its engine."""

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self._opened: tuple[Engine, Renderer] | None = None

    def opened(self, engine: Engine, renderer: Renderer) -> None:
        self._opened = engine, renderer

    @property
    def engine(self) -> Engine:
        """EngineUnavailable before `opened`."""
        return self._parts[0]

    @property
    def renderer(self) -> Renderer:
        """EngineUnavailable before `opened`."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[Engine, Renderer]:
        if self._opened is None:
            raise EngineUnavailable("the engine of this server is not open yet")
        return self._opened

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        while True:
            self.server_healthy = self._opened is not None and self.engine.fault is None
            await asyncio.sleep(LOOK_S)

    async def _chat_completion_wrapper(self, **asked: Any) -> ChatCompletion:
        messages = tuple(Message.from_dict(message) for message in asked["messages"])
        conversation = Conversation(messages=messages, tools=tuple(asked.get("tools") or ()))
        policy, now = Policy(self.engine, self.renderer, _sampling(asked)), time.time()
        responses = await asyncio.gather(
            *(policy.respond(conversation, now=now) for _ in range(asked.get("n") or 1))
        )
        choices = [
            {
                "index": index,
                "message": reply.message(lambda at: f"call_{at}").to_dict(),
                "finish_reason": reply.ending,
            }
            for index, (_, reply) in enumerate(responses)
        ]
        return ChatCompletion.model_validate(_answer("chat.completion", asked["model"], choices))

    async def _completion_wrapper(self, **asked: Any) -> Completion:
        _, sampled, _, finishes = await self._tokens_and_logprobs_completion_wrapper(**asked)
        choices = [
            {"index": index, "text": self.renderer.decode(ids), "finish_reason": finish}
            for index, (ids, finish) in enumerate(zip(sampled, finishes, strict=True))
        ]
        return Completion.model_validate(_answer("text_completion", asked["model"], choices))

    async def _tokens_and_logprobs_completion_wrapper(
        self, **asked: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        """Ids of the prompt; then for each response its ids, their log-probs and how it ended."""
        prompt, sampling = self._prompt(asked), _sampling(asked)
        if sampling.stop:
            raise SettingError(
                "stop strings cut text, not tokens: name no `stop`, or ask for a chat completion"
            )
        request = Generate(prompt_ids=prompt, sampling=sampling)
        responses = await asyncio.gather(*(self._response(request) for _ in range(asked.get("n") or 1)))
        ids = [[id for step in steps for id in step.ids] for steps in responses]
        logprobs = [[value for step in steps for value in step.logprobs] for steps in responses]
        return list(prompt), ids, logprobs, [steps[-1].ended or "stop" for steps in responses]

    async def _get_logprobs_wrapper(self, **asked: Any) -> dict[str, Any]:
        """The live weights' most likely ids and their log-probs at each position of a prompt.

        The first id follows nothing, so its row is empty.
        """
        prompt = self._prompt(asked)
        top = min(
            int(asked.get("top_k") or asked.get("top_logprobs") or 1), self.engine.capabilities.scored_ids
        )
        scored = list[Scored]()
        if len(prompt) > 1:
            row = Score(prompt_ids=prompt[:1], response_ids=prompt[1:])
            scored = await self.engine.score([row], top=top, weights=Weights.LIVE)
        return {
            "prompt_tokens": list(prompt),
            "prompt_topk_token_ids": [[], *(list(ids) for each in scored for ids in each.top_ids)],
            "prompt_topk_logprobs": [[], *(list(row) for each in scored for row in each.top_logprobs)],
        }

    def _prompt(self, asked: dict[str, Any]) -> tuple[int, ...]:
        given: Sequence[int] | None = asked.get("input_ids")
        return tuple(given) if given is not None else self.renderer.encode(asked["prompt"])

    async def _response(self, request: Generate) -> list[Step]:
        async with aclosing(self.engine.generate(request)) as steps:
            return [step async for step in steps]


def _answer(kind: str, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    created = int(time.time())
    return {"id": "afterwit", "object": kind, "created": created, "model": model, "choices": choices}


def _sampling(asked: dict[str, Any]) -> Sampling:
    length = asked.get("max_tokens") or asked.get("max_completion_tokens") or asked.get("max_new_tokens")
    temperature, top_p, stop = asked.get("temperature"), asked.get("top_p"), asked.get("stop") or ()
    return Sampling(
        max_tokens=length or UNSET_TOKENS,
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
    )
