"""What does reading a reply by log-probs cost, against six written answers, and how right is it?

SmolLM2-135M-Instruct, as `experiments.published_model` writes it to build/smollm2, on the embedded engine. A
reading scores twenty messages of one reply; writing samples three votes and three hints of at most 256 tokens
each, on the turns of the exam. Left out: models that write votes that can be read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from afterwit import build
from afterwit.chat_format.render import Renderer
from afterwit.config import load
from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from afterwit.judging.ability import AT_ONCE
from afterwit.judging.engine_judge import EngineReader
from afterwit.judging.exam import EXAM
from afterwit.judging.polarity import REPLIES, Border, LogProbs, borders
from afterwit.judging.questions import JudgeView
from afterwit.judging.settings import judge_prompts
from afterwit.judging.voting import evaluation_vote, hint_vote
from afterwit.verdict import Question
from benchmarks.asked import Asked
from benchmarks.measure import Row, at_most

MODEL = Path("build/smollm2")
MISSING = "there is no build/smollm2"
MOST_TOKENS = 256
VOTES = 3


def rows(asked: Asked) -> Iterator[Row]:
    if not MODEL.is_dir():
        yield Row(id="j1", what="reading a reply / writing votes and hints", values=(), absent=MISSING)
        return
    yield from asyncio.run(_measured(asked))


async def _measured(asked: Asked) -> list[Row]:
    settings = load(home=Path("build/benchmarks"), direct={"model": str(MODEL)}, environment={})
    engine, renderer = await open_engine(MODEL, settings.engine), Renderer.load(MODEL)
    reader = EngineReader(engine, renderer)
    texts = {kind: said[: AT_ONCE // 4] if asked.quick else said for kind, said in REPLIES.texts.items()}
    began = time.process_time()
    found = dict[str, list[LogProbs]]()
    for kind, said in texts.items():
        pieces = [said[at : at + AT_ONCE] for at in range(0, len(said), AT_ONCE)]
        found[kind] = [each for piece in pieces for each in await reader.logprobs(piece, REPLIES)]
    reading = (time.process_time() - began) / sum(map(len, texts.values()))
    began, turns = time.process_time(), EXAM[1:2] if asked.quick else EXAM
    most = MOST_TOKENS // 16 if asked.quick else MOST_TOKENS
    readable, chars = await _written(engine, renderer, [case.view for case in turns], most)
    writing = (time.process_time() - began) / len(turns)
    await engine.close()
    fitted = borders(found, REPLIES.parts)
    return [
        Row(
            id="J1",
            what="judging: reading a reply / writing three votes and three hints",
            values=(reading / writing,),
            target=at_most(0.25),
            note=f"{reading:.2f} and {writing:.1f} CPU s; {readable} answers of {chars} characters are votes",
        ),
        _row("j2", "complaints", fitted.complaint),
        _row("j3", "thanks", fitted.thanks),
    ]


def _row(id: str, kind: str, border: Border) -> Row:
    what, note = f"judging: share of {kind} that are read", f"finds {border.described(kind)}"
    return Row(id=id, what=what, values=(border.found / border.of,), note=note)


async def _written(
    engine: Engine, renderer: Renderer, views: Sequence[JudgeView], most: int
) -> tuple[str, int]:
    """The number of readable answers of at most `most` tokens, as text, and the characters of all answers."""
    settings = load(home=Path("build/benchmarks"), direct={"model": str(MODEL)}, environment={}).judge
    judge, prompts = build.judge_client(settings, engine, renderer), judge_prompts(settings)
    asked = [
        (question, prompts.messages(question, view), seed)
        for view in views
        for question in (Question.EVALUATION, Question.HINT)
        for seed in range(VOTES)
    ]
    answers = await asyncio.gather(
        *(
            judge.ask(messages, temperature=settings.temperature, max_tokens=most, seed=seed)
            for _, messages, seed in asked
        )
    )
    votes = [
        hint_vote(answer, (), quote_words=settings.quote_words)
        if question is Question.HINT
        else evaluation_vote(answer)
        for (question, _, _), answer in zip(asked, answers, strict=True)
    ]
    read = sum(vote.value is not None for vote in votes)
    return f"{read} of {len(votes)}", sum(len(answer.words) for answer in answers)
