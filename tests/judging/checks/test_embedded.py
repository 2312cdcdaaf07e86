"""The counterfactual check over the chat world's own model: hints that name what was missed win."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.demo.chat import cases as expert
from afterwit.demo.chat.world import SYSTEM
from afterwit.demo.worlds import WORLDS
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.judging.check_stage import HintScoring
from afterwit.judging.checks import HintPair, hint_lifts
from afterwit.judging.hinted_prompts import Placement
from afterwit.message import Conversation, Message
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Sampled
from afterwit.verdict import Source, Verdict
from tests.store.examples import add_judged

WORLD = WORLDS["chat"]
PAIRS = 8


@pytest.fixture(scope="module")
def folder() -> Path:
    return WORLD.folder / "model"


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(folder, EmbeddedSettings(slots=2))
    yield engine
    await engine.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    yield opened
    await opened.close()


def ids_of(engine: EmbeddedEngine, renderer: Renderer, asked: Conversation, said: str) -> tuple[int, ...]:
    """A response's ids behind the prompt, as the template writes them, with the end of the turn."""
    answered = (*asked.messages, Message(role="assistant", content=said))
    ids = renderer.prompt_ids(Conversation(messages=answered))[len(renderer.prompt_ids(asked)) :]
    return ids[: next(at for at, each in enumerate(ids) if each in engine.facts.end_ids) + 1]


async def test_a_hint_that_names_what_was_missed_helps_more_than_one_about_something_else(
    store: AsyncStore, engine: EmbeddedEngine, folder: Path
) -> None:
    renderer = Renderer.load(folder)

    async def put(id: str, asked: Conversation, said: str, rule: str | None) -> None:
        hints = () if rule is None else (WORLD.hint([rule]),)
        verdict = Verdict(reward=-1 if hints else 1, source=Source.VOTES, hints=hints)
        prompt, ids = renderer.prompt_ids(asked), ids_of(engine, renderer, asked, said)
        zeros = (0,) * len(ids)
        sampled = Sampled(ids=ids, logprobs=zeros, versions=zeros, forced=(False,) * len(ids))
        told = {"session": id, "conversation": asked, "prompt_ids": prompt, "sampled": sampled}
        await store.call(lambda each: add_judged(each, id, verdict, **told))

    scoring, found = HintScoring(engine, renderer, Placement.LAST_USER), []
    for number in range(PAIRS):
        rng = Random(number)
        task = WORLD.task("fresh", rng)
        missed, elsewhere = rng.sample(["short", "plain", "friendly"], 2)
        kind, thing = task.kind.split("_")[0], next(iter(task.subject.values()))
        liked = expert.expert_answer(kind, thing, task.checks[0], {missed}, rng)
        system, user = Message(role="system", content=SYSTEM), Message(role="user", content=task.request)
        asked = Conversation(messages=(system, user))
        await put(f"complaint{number}", asked, liked, missed)
        await put(f"accepted{number}", asked, liked, None)
        await put(f"other{number}", asked, liked, elsewhere)
        pair = HintPair(turn=f"complaint{number}", accepted=f"accepted{number}", other=f"other{number}")
        lift = await scoring.lift(store, pair)
        assert lift is not None
        found.append(lift)
    wins = hint_lifts(found).wins
    assert wins.count >= 0.75 * wins.of
