from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.errors import RequestError
from afterwit.judging.hinted_prompts import HEADING, Placement, splice
from afterwit.learning.batch import Item, Refused, TurnLimits, build_items
from afterwit.lifecycle import Reason
from afterwit.objective.sample import advantages
from afterwit.objective.settings import ObjectiveSettings, Rewarded
from afterwit.turn import Conversation, Message
from afterwit.verdict import Carried, JudgedTurn, carried
from tests.fakes.judged_samples import HINTS, a_sample

LIMITS = TurnLimits(max_tokens=512, max_staleness=16, version=20, chain=range(21))
HYBRID = ObjectiveSettings()
OPD_ONLY = ObjectiveSettings(w_rl=0.0)


def one(
    sample: JudgedTurn,
    renderer: Renderer,
    objective: ObjectiveSettings = HYBRID,
    limits: TurnLimits = LIMITS,
    placement: Placement = Placement.LAST_USER,
) -> Item | Refused:
    items, refused = build_items([sample], renderer, placement, limits, objective)
    assert len(items) + len(refused) == 1
    return (items or refused)[0]


def item(*args: object, **more: object) -> Item:
    found = one(*args, **more)  # type: ignore[arg-type]
    assert isinstance(found, Item)
    return found


def reason(*args: object, **more: object) -> Reason:
    found = one(*args, **more)  # type: ignore[arg-type]
    assert isinstance(found, Refused)
    return found.reason


def elsewhere(sample: JudgedTurn) -> JudgedTurn:
    """The same turn, its stored messages changed: they no longer render to its prompt."""
    conversation = Conversation(messages=(Message(role="user", content="Something else."),))
    return replace(sample, turn=replace(sample.turn, conversation=conversation))


@pytest.mark.parametrize("placement", list(Placement))
def test_the_teacher_scores_the_sampled_ids_after_the_hinted_prompt(
    renderer: Renderer, placement: Placement
) -> None:
    sample = a_sample(renderer, 1, version=20)
    found = item(sample, renderer, placement=placement)
    assert found.student.prompt == sample.turn.prompt_ids
    assert found.hints == HINTS
    for row, hint in zip(found.teachers, HINTS, strict=True):
        assert row.response == found.student.response == sample.turn.sampled.ids
        assert row.prompt == renderer.prompt_ids(splice(sample.turn.conversation, hint, placement))
        assert row.prompt != found.student.prompt


def test_a_turn_that_does_not_render_to_its_prompt_has_no_opd_term(renderer: Renderer) -> None:
    found = item(elsewhere(a_sample(renderer, 1, version=20)), renderer)
    assert found.teachers == ()
    assert found.reward == -1.0
    assert reason(elsewhere(a_sample(renderer, 1, version=20)), renderer, OPD_ONLY) is Reason.RENDER_MISMATCH


def test_without_hints_a_turn_need_not_render(renderer: Renderer) -> None:
    assert item(elsewhere(a_sample(renderer, 1, version=20, hints=())), renderer).reward == -1.0


def test_a_hinted_prompt_over_the_context_drops_that_candidate_only(renderer: Renderer) -> None:
    sample = a_sample(renderer, 1, version=20)
    short = item(sample, renderer).teachers[0]
    found = item(sample, renderer, limits=replace(LIMITS, max_tokens=len(short)))
    assert found.hints == HINTS[:1]
    tight = replace(LIMITS, max_tokens=len(short) - 1)
    assert item(sample, renderer, limits=tight).teachers == ()
    assert reason(sample, renderer, OPD_ONLY, limits=tight) is Reason.TOO_LONG


def test_a_template_that_refuses_a_hinted_prompt_drops_that_candidate(renderer: Renderer) -> None:
    class Picky:
        def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
            if HINTS[0] in (conversation.messages[-1].content or ""):
                raise RequestError(400, "template_error", "no")
            return renderer.prompt_ids(conversation)

    items, _ = build_items([a_sample(renderer, 1, version=20)], Picky(), Placement.LAST_USER, LIMITS, HYBRID)
    assert items[0].hints == HINTS[1:]


def test_a_turn_whose_template_takes_no_hint_ends_as_one_that_does_not_render(renderer: Renderer) -> None:
    """For example roles must alternate, and a hint is a second user message."""
    sample = a_sample(renderer, 1, version=20)

    class Strict:
        def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
            if conversation != sample.turn.conversation:
                raise RequestError(400, "template_error", "roles must alternate")
            return renderer.prompt_ids(conversation)

    assert build_items([sample], Strict(), Placement.END, LIMITS, OPD_ONLY) == (
        [],
        [Refused(turn=sample.turn.id, reason=Reason.RENDER_MISMATCH)],
    )


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ({"version": 3}, Reason.STALE),
        ({"versions": (20, 20, 3), "tokens": 3}, Reason.STALE),
        ({"version": 20, "tokens": 600}, Reason.TOO_LONG),
        ({"version": 20, "forced": (True,) * 6}, Reason.ALL_FORCED),
        ({"version": 20, "tokens": 0}, Reason.EMPTY_RESPONSE),
        ({"version": 20, "logprobs": (float("-inf"),) * 6}, Reason.NOT_FINITE),
    ],
)
def test_what_cannot_train_ends_with_its_reason(
    renderer: Renderer, sample: dict[str, object], expected: Reason
) -> None:
    assert reason(a_sample(renderer, 1, **sample), renderer) is expected  # type: ignore[arg-type]


def test_staleness_is_that_of_the_oldest_token(renderer: Renderer) -> None:
    assert item(a_sample(renderer, 1, tokens=3, versions=(20, 4, 19)), renderer).staleness == 16


@pytest.mark.parametrize(
    ("objective", "reward", "hints", "carries"),
    [
        (HYBRID, -1, HINTS, (True, True)),
        (HYBRID, 0, HINTS, (False, True)),
        (HYBRID, 1, (), (True, False)),
        (ObjectiveSettings(objective="rl"), 1, HINTS, (True, False)),
        (ObjectiveSettings(objective="token_opd"), 1, HINTS, (False, True)),
        (ObjectiveSettings(objective="topk_distill"), 1, HINTS, (False, True)),
        (ObjectiveSettings(objective="combine"), -1, HINTS, (True, True)),
        (ObjectiveSettings(objective="combine"), 0, HINTS, (False, True)),
        (ObjectiveSettings(objective="combine"), 1, (), (True, False)),
        (ObjectiveSettings(objective="combine", w_rl=0.0), 1, (), None),
        (ObjectiveSettings(objective="topk_distill"), 1, (), None),
        (ObjectiveSettings(objective="topk_opd"), 1, (), None),
        (ObjectiveSettings(objective="rl"), 0, HINTS, None),
        (ObjectiveSettings(w_opd=0.0), 0, HINTS, None),
        (OPD_ONLY, 1, (), None),
    ],
)
def test_a_turn_without_a_term_of_weight_ends_as_nothing_to_learn(
    renderer: Renderer,
    objective: ObjectiveSettings,
    reward: int,
    hints: tuple[str, ...],
    carries: tuple[bool, bool] | None,
) -> None:
    found = one(a_sample(renderer, 1, version=20, reward=reward, hints=hints), renderer, objective)
    if carries is None:
        assert found == Refused(turn="turn0001", reason=Reason.NO_SIGNAL)
    else:
        assert isinstance(found, Item)
        assert (found.reward is not None, bool(found.teachers)) == carries


ROUTED = ObjectiveSettings(routing="routed")
SURE = (-0.01,) * 6


@pytest.mark.parametrize(
    ("objective", "facts", "carries"),
    [
        (ROUTED, {"reward": -1}, (False, True)),
        (ROUTED, {"reward": -1, "hints": ()}, (True, False)),
        (ROUTED, {"reward": -1, "logprobs": SURE}, (False, True)),
        (ROUTED, {"reward": 0}, (False, True)),
        (ROUTED, {"reward": 1}, (True, False)),
        (ROUTED, {"reward": 1, "logprobs": SURE}, Reason.ALREADY_CONFIDENT),
        (ROUTED, {"reward": 1, "logprobs": SURE, "hints": ()}, Reason.ALREADY_CONFIDENT),
        (replace(ROUTED, confident_above=1.0), {"reward": 1, "logprobs": SURE}, (True, False)),
        (replace(ROUTED, objective="topk_distill"), {"reward": 1}, Reason.ALREADY_GOOD),
        (replace(ROUTED, objective="rl"), {"reward": -1}, (True, False)),
        (replace(ROUTED, w_opd=0.0), {"reward": -1}, (True, False)),
    ],
)
def test_a_routed_turn_learns_by_one_term_or_ends_with_the_reason(
    renderer: Renderer,
    objective: ObjectiveSettings,
    facts: dict[str, object],
    carries: tuple[bool, bool] | Reason,
) -> None:
    found = one(a_sample(renderer, 1, version=20, **facts), renderer, objective)  # type: ignore[arg-type]
    if isinstance(carries, Reason):
        assert found == Refused(turn="turn0001", reason=carries)
    else:
        assert isinstance(found, Item)
        assert (found.reward is not None, bool(found.teachers)) == carries


def test_a_routed_failure_whose_hint_cannot_be_shown_learns_by_its_reward(renderer: Renderer) -> None:
    found = item(elsewhere(a_sample(renderer, 1, version=20, reward=-1)), renderer, ROUTED)
    assert (found.reward, found.teachers) == (-1.0, ())


def test_a_turn_that_learns_nothing_says_so_before_its_hints_are_looked_at(renderer: Renderer) -> None:
    sure = elsewhere(a_sample(renderer, 1, version=20, reward=1, logprobs=SURE))
    assert reason(sure, renderer, ROUTED) is Reason.ALREADY_CONFIDENT


def test_a_greedy_turn_is_scored_at_temperature_one(renderer: Renderer) -> None:
    greedy = item(replace(a_sample(renderer, 1, version=20, tau=0.0), rl=False), renderer)
    sampled = item(a_sample(renderer, 1, version=20, tau=0.6), renderer)
    assert (greedy.behaviour.tau, sampled.behaviour.tau) == (1.0, 0.6)


PAIR = ("Say it in one word.", "Read the file before you answer it.")


@pytest.mark.parametrize(
    ("rule", "rows"),
    [("shortest", [0]), ("longest", [1]), ("sequence_optimal", [0, 1]), ("token_optimal", [0, 1])],
)
def test_only_the_teachers_that_the_rule_reads_are_scored(
    renderer: Renderer, rule: str, rows: list[int]
) -> None:
    made = item(
        a_sample(renderer, 1, version=20, hints=PAIR), renderer, ObjectiveSettings(hint_selection=rule)
    )
    every = item(a_sample(renderer, 1, version=20, hints=PAIR), renderer, ObjectiveSettings())
    assert made.hints == tuple(PAIR[index] for index in rows)
    assert made.teachers == tuple(every.teachers[index] for index in rows)


def test_of_the_hints_that_fit_the_longest_teaches(renderer: Renderer) -> None:
    sample = a_sample(renderer, 1, version=20, hints=(*PAIR, "Long. " * 400))
    assert item(sample, renderer, ObjectiveSettings(hint_selection="longest")).hints == PAIR[1:]


def test_an_update_learns_from_the_whole_groups_rewards(renderer: Renderer) -> None:
    """Two good turns and an unclear one: the advantage is over all three, with one in the batch."""
    objective = ObjectiveSettings(objective="rl", baseline="group", beta=0.0)
    sample = replace(a_sample(renderer, 1, version=20, reward=1, hints=()), group_rewards=(1, 1, 0))
    made = item(sample, renderer, objective)
    assert made.reward is not None
    found = advantages([Rewarded(made.reward, made.group)], objective)
    assert found.values == pytest.approx((1 / 3**0.5,))


def shown(renderer: Renderer, **more: Any) -> JudgedTurn:
    """A turn whose prompt showed a lesson."""
    sample = a_sample(renderer, 1, version=20, **more)
    conversation = replace(sample.turn.conversation, lessons="Keep it short.")
    turn = replace(sample.turn, conversation=conversation, prompt_ids=renderer.prompt_ids(conversation))
    return replace(sample, turn=turn, opd=True)


def test_a_prompt_with_lessons_teaches_the_student_that_does_not_read_them(renderer: Renderer) -> None:
    sample = shown(renderer, hints=(), reward=1)
    found = item(sample, renderer)
    plain = renderer.prompt_ids(replace(sample.turn.conversation, lessons=""))
    assert (found.student.prompt, found.hints) == (plain, ("",))
    assert [row.prompt for row in found.teachers] == [sample.turn.prompt_ids]
    assert plain != sample.turn.prompt_ids
    assert found.reward is None  # it is of another prompt
    assert found.behaviour.logprobs is None  # so are these


def test_a_hint_joins_the_lessons_that_the_prompt_showed(renderer: Renderer) -> None:
    sample = shown(renderer, hints=HINTS[:1])
    (row,) = item(sample, renderer).teachers
    assert row.prompt == renderer.prompt_ids(splice(sample.turn.conversation, HINTS[0]))


def test_a_bad_answer_with_lessons_teaches_by_its_hint_alone(renderer: Renderer) -> None:
    sample = shown(renderer)
    for reward, hints, expected in (
        (-1, (), Carried(reason=Reason.NO_SIGNAL)),
        (-1, HINTS, Carried(opd=True)),
    ):
        assert carried(sample.turn, replace(sample.verdict, reward=reward, hints=hints)) == expected
    for reward in (0, 1):
        assert carried(sample.turn, replace(sample.verdict, reward=reward, hints=())) == Carried(opd=True)


def test_a_response_that_recites_a_hint_is_taught_by_the_model_without_it(renderer: Renderer) -> None:
    sample = a_sample(renderer, 1, version=20)
    message = Message(role="assistant", content=f"done\n{HEADING}\n{HINTS[0]}")
    (row,) = item(replace(sample, turn=replace(sample.turn, message=message)), renderer).teachers
    assert row.prompt == sample.turn.prompt_ids
    read = shown(renderer, hints=HINTS)
    assert reason(replace(read, turn=replace(read.turn, message=message)), renderer) is Reason.NO_SIGNAL
