"""A response's tokens were found by searching for its text or ids in a re-rendered conversation.

With another tokenisation, or the same words earlier in the prompt, something else was trained.
"""

from __future__ import annotations

from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.batch import build_items
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn, Source, Verdict
from tests.fakes.engine import FakeEngine
from tests.gateway.serving import Serving, serving
from tests.learning.updates import LIMITS

SAYS = "read the file"
ASKED = [{"role": "user", "content": f"Say {SAYS}. I mean {SAYS}, as in: {SAYS}."}]


async def recorded(gateway: Serving) -> JudgedTurn:
    """A turn that came over HTTP, judged bad and hinted."""
    answer = await gateway.ask(ASKED)
    assert answer.json()["choices"][0]["message"]["content"] == SAYS
    (record,) = await gateway.records()
    verdict = Verdict(reward=-1, source=Source.VOTES, hints=(f"Better to {SAYS} twice.",))
    return JudgedTurn(turn=record.turn, verdict=verdict, rl=True, opd=True)


async def test_what_trains_are_the_ids_that_were_sampled_after_the_prompt_that_was_read(
    tmp_path: Path, renderer: Renderer
) -> None:
    """The engine samples its words letter by letter, unlike any tokenizer; the prompt holds them too."""
    letters = [id for letter in SAYS for id in renderer.encode(letter)]
    assert letters != list(renderer.encode(SAYS))
    end = min(renderer.end_ids)
    engine = FakeEngine(lambda request: letters, end_id=end, vocabulary=renderer.vocabulary)
    async with serving(tmp_path, renderer, engine=engine) as gateway:
        sample = await recorded(gateway)
    read = engine.asked[0].prompt_ids
    ((item,), refused) = build_items([sample], renderer, Placement.LAST_USER, LIMITS, ObjectiveSettings())
    assert refused == []
    assert item.student.prompt == read
    for row in (item.student, *item.teachers):
        assert row.response == (*letters, end)
    (teacher,) = item.teachers
    assert teacher.prompt != read
    assert renderer.decode(teacher.prompt).count(SAYS) == 4
