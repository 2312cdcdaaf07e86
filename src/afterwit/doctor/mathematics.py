"""Self-tests of an update's mathematics, by the update's own code, with the served weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from afterwit.chat_format.render import Renderer
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.doctor.model import HINT, SAMPLE
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.learning.batch import Behaviour, Item
from afterwit.learning.passes import Packing, Row, probe, stream_logits
from afterwit.learning.policy import FrozenModels
from afterwit.learning.trainer import Trainer
from afterwit.learning.update import score, update_state
from afterwit.objective import ObjectiveSettings
from afterwit.objective.terms import at, logprobs
from afterwit.weights.agreement import LEAST, MOST_EXACT, allowed
from afterwit.weights.weights import widened

RESPONSE = "I will look first: ls todo.txt notes.txt, then mv -n notes.txt todo.txt."
OTHER_HINT = "Answer in French."


def check_mathematics(
    trainer: Trainer, renderer: Renderer, placement: Placement, frozen: FrozenModels | None = None
) -> Iterator[Finding]:
    """Every test of the mathematics. `frozen` replaces the trainer's frozen models."""
    paths = _Paths(trainer, renderer, placement, frozen or trainer.frozen)
    report = "report it with the model's name; do not train with it"
    yield tested("the teacher's weights", paths.base_is_the_base, remedy=report)
    yield tested("same weights, no hint", paths.no_advantage, remedy=report)
    yield tested("teacher sensitivity", paths.sensitive, remedy=report)
    yield tested("packed and alone", paths.invariant, remedy='set learner.packing = "off"')


class _Paths:
    """A made-up turn on the update's own paths."""

    def __init__(
        self, trainer: Trainer, renderer: Renderer, placement: Placement, frozen: FrozenModels
    ) -> None:
        self._policy, self._settings, self._versions = trainer.policy(), trainer.settings, trainer.versions
        self._frozen = frozen
        response = renderer.encode(RESPONSE)
        prompts = [renderer.prompt_ids(splice(SAMPLE, hint, placement)) for hint in ("", HINT, OTHER_HINT)]
        self._rows = [Row(prompt=prompt, response=response) for prompt in prompts]

    @cached_property
    def _allowed(self) -> float:
        """Nats by which the same weights may differ on average here: what rounding makes of these rows."""
        model = self._frozen.base(self._policy)
        rounded = self._alone(model)
        exact = self._alone(widened(model))
        return allowed(max(_most_apart(rounded, exact), LEAST), self._settings.dtype)

    def base_is_the_base(self) -> str:
        """The frozen base, as an update asks it, still gives what it gave before anything was learned."""
        first = self._versions.get(0)
        if first is None:
            expect(self._policy.number == 0, "there are versions, but no record of the base")
        expected = probe(self._policy.model) if first is None else first.probe
        row = Row(prompt=expected.ids[:1], response=expected.ids[1:])
        shorter = Row(prompt=expected.ids[:1], response=expected.ids[1:-1])
        logprobs_T, _ = self._sampled(widened(self._frozen.base(self._policy)), [row, shorter])
        gap = _most_apart([logprobs_T], [torch.tensor(expected.logprobs)])
        before = "before anything was learned"
        expect(gap <= MOST_EXACT, f"the frozen base is {gap:.3g} nats from what it was {before}")
        return f"the frozen base is what it was {before}, within {gap:.2g} nats"

    def no_advantage(self) -> str:
        """The policy as its own teacher, through the teacher's pass, packed with a hinted branch."""
        same_N, hinted_N = self._gaps(self._rows[0], self._rows[1])
        gap = same_N.abs().mean().item()
        expect(gap <= self._allowed, f"a teacher with the student's weights is {gap:.3g} nats from it")
        moved = "the hint moves nothing: the teacher's log-probs equal the student's"
        expect(hinted_N.abs().mean().item() > gap, moved)
        return f"a teacher with the student's weights agrees with it within {gap:.2g} nats"

    def sensitive(self) -> str:
        """Another hint gives another teacher and other advantages."""
        one_N, other_N = self._gaps(self._rows[1], self._rows[2])
        moved, apart = one_N.abs().mean().item(), (one_N - other_N).abs().mean().item()
        expect(moved > 0.0, "the hint moves nothing: the teacher's log-probs equal the student's")
        expect(apart > self._allowed * 0.01, "another teacher gives the same advantages")
        return f"a hint moves the response by {moved:.3g} nats a token, another hint moves it elsewhere"

    def invariant(self) -> str:
        """Rows that share their prompt give the same log-probs in one pass and in separate passes."""
        model = self._frozen.base(self._policy)
        gap = _most_apart(self._sampled(model, self._rows), self._alone(model))
        expect(gap <= self._allowed, f"log-probs in one pass and in separate passes differ by {gap:.3g} nats")
        return f"log-probs in one pass and in separate passes agree within {gap:.2g} nats"

    def _alone(self, model: object) -> list[Tensor]:
        """log-probs [T] of each row in a pass of its own."""
        return [self._sampled(model, [row])[0] for row in self._rows]

    def _sampled(self, model: object, rows: Sequence[Row]) -> list[Tensor]:
        """log-probs [T] of the rows' responses, in passes as an update cuts them."""
        packing = Packing.of(self._settings, model)
        stream = stream_logits(model, rows, self._settings.pass_tokens, packing)
        return [
            at(logprobs(logits_TV.double().cpu(), 1.0), torch.tensor(row.response))
            for row, logits_TV in zip(rows, stream, strict=True)
        ]

    def _gaps(self, *teachers: Row) -> list[Tensor]:
        """Each teacher's log-probs less the student's [N], by an update's first phase in which the policy
        teaches itself."""
        student, tokens = self._rows[0], len(self._rows[0].response)
        items = [
            Item(
                turn=None,
                behaviour=Behaviour(forced=(False,) * tokens, logprobs=(0.0,) * tokens),
                student=student,
                teachers=(row,),
                hints=("",),
                reward=None,
                staleness=0,
            )
            for row in teachers
        ]
        objective = ObjectiveSettings(objective="topk_opd", beta=0.0)
        live = self._frozen.named("live")
        state = update_state(self._policy, live, items, objective, self._settings)
        score(state)
        return [state.targets[index].tokens.gap_N for index in range(len(items))]


def _most_apart(ones: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """The largest mean |difference| of log-probs [T] of a row."""
    pairs = zip(ones, others, strict=True)
    return max(float((one.cpu() - other.cpu()).abs().mean()) for one, other in pairs)
