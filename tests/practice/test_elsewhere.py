"""Old logs teach: what was recorded elsewhere is never trained on, but its prompts are asked again."""

from __future__ import annotations

import json

from afterwit.chat_format.render import Renderer
from afterwit.importing.importing import import_lines
from afterwit.lifecycle import Reason, State
from afterwit.practice.stage import with_lessons
from afterwit.store import Filter, Store
from afterwit.turn import Kind, Turn
from afterwit.verdict import Flag, Question, ReviewRule, Source, Verdict, Vote
from tests.practice.test_stage import NOW, SHORT, House, recorded

LINE = {
    "messages": [
        {"role": "user", "content": "Explain the moon."},
        {"role": "assistant", "content": "The moon is a very long story."},
        {"role": "user", "content": "Too long."},
    ]
}


def imported(store: Store, *, practise: str | None, flags: tuple[Flag, ...] = ()) -> str:
    """The turn of an import that the judge found a hint in."""
    lines = [json.dumps(LINE).encode()]
    import_lines(lines, store, judge=True, dry_run=False, now=lambda: NOW, practise=practise)
    (record,) = store.claim("judge", owner="judge", limit=9, lease_s=60.0, now=NOW)
    vote = Vote(question=Question.HINT, words=SHORT, value=1, hint=SHORT)
    verdict = Verdict(reward=-1, source=Source.VOTES, hints=(SHORT,), votes=(vote,))
    reason = Reason.NOT_SAMPLED_HERE
    with store.transaction():
        store.judged(
            record.turn.id, verdict, rl=False, opd=False, reason=reason, owner="judge", now=NOW, flags=flags
        )
        with_lessons(lambda store, turn, *, now: None, ReviewRule())(store, record.turn.id, now=NOW)
    return record.turn.id


def test_an_imported_correction_is_practised_on_its_own_prompt_and_on_recorded_ones(
    store: Store, renderer: Renderer
) -> None:
    recorded(store, "tea")
    turn = imported(store, practise="key")
    assert House(store, renderer).step()
    (lesson,) = store.lessons()
    assert (lesson.source, lesson.words, lesson.corrections[0].turn) == ("key", SHORT, turn)
    assert [answer.prompt for answer in lesson.answers] == [turn, "tea", turn, "tea"]
    answers = list(store.turns(Filter(kind=Kind.PRACTICE)))
    assert {each.state for each in answers} == {State.JUDGED}
    prompt = renderer.prompt_ids(store.turn(turn).turn.conversation)
    sampled = [each.sampled_turn for each in answers if each.sampled_turn.prompt_ids == prompt]
    assert len(sampled) == 2
    assert {renderer.decode(each.sampled.ids) for each in sampled} == {"Short.<|im_end|>"}


def test_what_was_recorded_elsewhere_never_waits_for_the_learner(store: Store, renderer: Renderer) -> None:
    turn = imported(store, practise="key")
    record = store.turn(turn)
    assert not isinstance(record.turn, Turn)
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NOT_SAMPLED_HERE)
    House(store, renderer).step()
    assert turn not in {each.turn for each in store.waiting(now=NOW + 9)}


def test_an_import_is_practised_only_if_a_person_asked_for_it(store: Store, renderer: Renderer) -> None:
    imported(store, practise=None)
    assert store.lessons() == []
    assert not House(store, renderer).step()


def test_a_doubtful_hint_of_an_old_log_is_not_practised(store: Store, renderer: Renderer) -> None:
    imported(store, practise="key", flags=(Flag.LINK,))
    house = House(store, renderer)
    assert not house.step()
    assert house.stage.doing == "1 lesson: waiting"
