"""One choice while it is sampled: tokens go in, events come out; at the end the message and the record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import chain

from afterwit.chat_format.encode import Detokenizer, StopStrings
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import CallDelta, ParsedCall, ResponseEvent, TextDelta, TokenLogprob
from afterwit.dialects.request import ModelRequest
from afterwit.engines.port import Engine, Generate, Step
from afterwit.gateway.prepare import Prompt, prepare
from afterwit.turn import SHARED, Basis, Conversation, Finish, Message, Sampled, Sampling

Spell = Callable[[int], bytes]


class Reply:
    """Pure: no engine, no socket. When `done`, the rest need not be sampled."""

    def __init__(
        self,
        *,
        detokenizer: Detokenizer,
        parser: ResponseParser,
        stops: Sequence[str] = (),
        one_call: bool = False,
        forced: int = 0,
        prefilled: int = 0,
        basis: Basis = Basis.PROCESSED,
        spell: Spell | None = None,
    ) -> None:
        self._detokenizer, self._parser = detokenizer, parser
        self._stops = StopStrings(stops)
        self._any_stops = any(stops)
        self._one_call = one_call
        self._forced = forced
        """Its first tokens, which the request gave: no stop string begins in them, nor in thoughts."""
        self._prefilled = prefilled
        """Characters of its content that the client sent."""
        self._pending_prefill = prefilled
        self._basis = basis
        self._spell = spell
        """Reads a token's bytes; None unless the client asked for log-probs."""
        self._by_token = self._any_stops or spell is not None
        """Whether each token is detokenised by itself; else a step is at once."""
        self._steps: list[Step] = []
        self._ended: str | None = None
        self._calls = 0
        self._read = 0
        """Characters detokenised."""
        self._cleared = 0
        """Characters that no stop string can take back."""
        self._tokens: list[tuple[int, TokenLogprob]] = []
        """Pending log-probs, each with the character at which its token ends."""
        self.completion = 0
        """Tokens sampled."""
        self.reasoning = 0
        """Tokens sampled in steps with reasoning."""

    @property
    def done(self) -> bool:
        """The engine ended it, a stop string came, or its only call is complete."""
        return self._ended is not None

    @property
    def version(self) -> int | None:
        """The weights that sampled the latest token; None before the first."""
        return self._steps[-1].versions[-1] if self._steps else None

    @property
    def cached(self) -> int:
        """Tokens of the prompt that the engine had read before, as far as it reports them."""
        return next((step.cached for step in self._steps if step.cached is not None), 0)

    @property
    def stop(self) -> str | None:
        """The stop string that ended it; None if none did."""
        return self._stops.matched

    @property
    def ending(self) -> Finish:
        """Why the response ended, unless its client left."""
        if self._ended == "length":
            return Finish.LENGTH
        return Finish.TOOL_CALLS if self._calls else Finish.STOP

    def push(self, step: Step) -> list[ResponseEvent]:
        """The events that the step's tokens complete."""
        if step.ids:
            self._steps.append(step)
        thought, events = self._parser.thinks, []
        for text in self._texts(step):
            events += self._parser.push(text) if text else []
        events = self._keep(events)
        self.completion += len(step.ids)
        if thought or self._parser.thinks:
            self.reasoning += len(step.ids)
        if self._stops.matched is not None or (self._one_call and self._calls):
            self._ended = "stop"
        elif step.ended is not None:
            self._ended = step.ended
        return events

    def finish(self) -> list[ResponseEvent]:
        """The events that were held back. Call it once, at the end; it cuts a reply that is not done."""
        self._ended = self._ended or "length"
        text = self._stops.push(self._detokenizer.finish()) + self._stops.finish()
        if self._stops.matched is None:
            self._cleared = self._read
        return self._keep((self._parser.push(text) if text else []) + self._parser.finish())

    def logprobs(self) -> list[TokenLogprob]:
        """Log-probs of the tokens whose text was cleared since the last call."""
        if not self._tokens:
            return []
        shown = [token for end, token in self._tokens if end <= self._cleared]
        self._tokens = self._tokens[len(shown) :]
        return shown

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The response with its prefill."""
        message = self._parser.message(call_id)
        return replace(message, tool_calls=message.tool_calls[:1]) if self._one_call else message

    def sent(self, call_id: Callable[[int], str]) -> Message:
        """The response as the client receives it."""
        message = self.message(call_id)
        if not self._prefilled:
            return message
        return replace(message, content=(message.content or "")[self._prefilled :])

    def sampled(self) -> Sampled:
        """Exactly what the engine sampled, a stop string's tokens and the end token included."""
        steps = self._steps
        cached = (step.cache_version for step in steps if step.cache_version is not None)
        return Sampled(
            ids=tuple(chain.from_iterable(step.ids for step in steps)),
            logprobs=tuple(chain.from_iterable(step.logprobs for step in steps)),
            versions=tuple(chain.from_iterable(step.versions for step in steps)),
            forced=tuple(chain.from_iterable(step.forced for step in steps)),
            basis=self._basis,
            cache_version=min(cached, default=None),
        )

    def _texts(self, step: Step) -> Iterator[str]:
        """The text that a step clears: token by token with stop strings, since a thought may end in it."""
        if not self._by_token:
            yield self._detokenizer.push(step.ids)
        elif self._any_stops:
            yield from (self._clear(step, place) for place in range(len(step.ids)))
        else:
            yield "".join(self._clear(step, place) for place in range(len(step.ids)))

    def _clear(self, step: Step, place: int) -> str:
        """The text that the token at a place clears. `completion` counts the tokens before the step."""
        piece = self._detokenizer.push((step.ids[place],))
        self._read += len(piece)
        forced = self.completion + place < self._forced
        exempt = forced or self._parser.thinks
        shown = self._stops.skip(piece) if exempt else self._stops.push(piece)
        self._cleared += len(shown)
        is_end = step.ended == "stop" and place == len(step.ids) - 1
        if self._spell is not None and not is_end and not (forced and self._prefilled):
            self._tokens.append((self._read, _token_logprob(step, place, self._spell)))
        return shown

    def _keep(self, events: list[ResponseEvent]) -> list[ResponseEvent]:
        """Count the calls, and leave out the prefill and all calls but the first if only one is allowed."""
        if not self._pending_prefill and len(events) == 1 and type(events[0]) is TextDelta:
            return events
        kept: list[ResponseEvent] = []
        for event in events:
            if self._pending_prefill and isinstance(event, TextDelta):
                text, self._pending_prefill = (
                    event.text[self._pending_prefill :],
                    max(self._pending_prefill - len(event.text), 0),
                )
                if text:
                    kept.append(TextDelta(text=text))
                continue
            if isinstance(event, CallDelta | ParsedCall) and self._one_call and self._calls:
                continue
            self._calls += isinstance(event, ParsedCall)
            kept.append(event)
        return kept


def _token_logprob(step: Step, place: int, spell: Spell) -> TokenLogprob:
    """A token's log-prob for the client: the model's own if the engine returns it, else the recorded one."""
    data = spell(step.ids[place])
    if not step.top_logprobs:
        return TokenLogprob(data=data, logprob=step.logprobs[place])
    top = step.top_logprobs[place]
    others = zip(top.ids, top.logprobs, strict=True)
    return TokenLogprob(
        data=data,
        logprob=top.sampled,
        top=[TokenLogprob(data=spell(index), logprob=logprob) for index, logprob in others],
    )


async def respond(
    engine: Engine,
    renderer: Renderer,
    conversation: Conversation,
    sampling: Sampling,
    *,
    now: float,
    adapter: str = SHARED,
    background: bool = False,
) -> tuple[Prompt, Reply]:
    """The prompt of a conversation, and the reply of the live weights to it, where no client asked for it.

    Raises RequestError if the conversation does not fit the model, EngineError if it cannot be sampled.
    """
    asked = ModelRequest(model=None, conversation=conversation, sampling=sampling)
    length = engine.facts.context_length
    prompt = await asyncio.to_thread(prepare, asked, renderer, context_length=length, now=now)
    reply = Reply(
        detokenizer=Detokenizer.of(renderer),
        parser=prompt.parser(),
        stops=prompt.sampling.stop,
        basis=engine.capabilities.basis,
    )
    request = Generate(
        prompt_ids=prompt.ids, sampling=prompt.sampling, adapter=adapter, background=background
    )
    async with aclosing(engine.generate(request)) as steps:
        async for step in steps:
            reply.push(step)
            if reply.done:
                break
    reply.finish()
    return prompt, reply
