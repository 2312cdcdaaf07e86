"""The person of the chat world asks on, reacts in words at the right moment, and never hands over a label."""

from dataclasses import dataclass, field
from random import Random

from afterwit.demo.chat import world as chat
from afterwit.demo.chat.world import ChatWorld
from afterwit.demo.people import Ask, Interaction, ServedMessage, evaluate
from afterwit.demo.words import part
from afterwit.demo.world import Task
from experiments.cases import chat as expert
from tests.demo.scripted import run_interaction

WORLD = ChatWorld()
ALL = frozenset(chat.RULES)


@dataclass
class Speaker:
    """Responder the n-th question in the n-th style; with `lie`, leaves the facts out."""

    task: Task
    styles: tuple[frozenset[str], ...]
    lie: bool = False
    asked: list[str] = field(default_factory=list)

    def __call__(self, ask: Ask) -> ServedMessage:
        index, kinds = len(self.asked), self.task.kind.split("_")
        self.asked.append(ask.messages[-1]["content"])
        said = "Understood."
        if index < len(kinds) and ask.max_tokens is None:
            facts = ("no idea", "none", "nothing") if self.lie else self.task.checks[index]
            thing = self.task.subject[kinds[index]]
            said = expert.expert_answer(kinds[index], thing, facts, self.styles[index], Random(index))
        return ServedMessage(message={"role": "assistant", "content": said}, turn=f"turn{index}")


def _played(kind: str, *styles: frozenset[str], lie: bool = False) -> tuple[Interaction, Task]:
    task = chat.of_kind(kind, "fresh", Random(4))
    speaker = Speaker(task, styles, lie)
    return run_interaction(speaker, WORLD, task, "fresh", Random(0)), task  # type: ignore[arg-type]


def test_a_first_answer_in_the_wrong_style_is_complained_about_before_the_second_question() -> None:
    seen, _ = _played("where_who", frozenset(), ALL)
    assert [message["role"] for message in seen.messages] == ["system", *["user", "assistant"] * 2]
    assert (seen.mood, seen.broken, seen.turns) == ("complaint", chat.RULES[:3], ("turn0",))
    assert seen.messages[3]["content"] == seen.reaction


def test_the_second_question_follows_a_good_answer_and_the_reaction_is_to_the_last_one() -> None:
    seen, task = _played("howto_when", ALL, frozenset({"short", "friendly"}))
    assert seen.messages[3]["content"] == task.follow_ups[0]
    assert (seen.mood, seen.broken, seen.turns) == ("complaint", ("plain",), ("turn0", "turn1"))
    assert seen.messages[5]["content"] == seen.reaction


def test_answers_the_persons_way_are_thanked_for_at_the_end() -> None:
    seen, _ = _played("where_who", ALL, ALL)
    assert (seen.mood, seen.passed, seen.broken) == ("approval", True, ())
    assert any(thanks[1:] in seen.reaction for thanks in part(chat.WORDINGS["person"]["thanks"], "fresh"))


def test_an_answer_without_its_fact_is_told_which_one_and_asked_nothing_further() -> None:
    seen, task = _played("where_who", ALL, ALL, lie=True)
    assert (seen.mood, seen.passed, seen.turns) == ("failure", False, ("turn0",))
    assert task.checks[0][0] in seen.reaction


def test_a_reaction_holds_no_label_and_no_words_of_the_judge() -> None:
    for kind in set(chat.KINDS):
        said = _played(kind, frozenset(), frozenset())[0].reaction
        assert not {"boxed", "rule:", "-1", "short:", "hint"} & set(said.lower().split())


def test_preference_and_success_count_conversations_not_answers() -> None:
    task = chat.of_kind("where_who", "fresh", Random(4))
    half = evaluate(Speaker(task, (ALL, frozenset())), WORLD, [task])  # type: ignore[arg-type]
    assert (half.preference, half.task_success) == (0.0, 1.0)
    whole = evaluate(Speaker(task, (ALL, ALL)), WORLD, [task])  # type: ignore[arg-type]
    assert (whole.preference, whole.task_success) == (1.0, 1.0)
