"""Self-tests of what the learner relies on, with the very model and kernels that train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from afterwit.apps.doctor.finding import Finding, expect, tested
from afterwit.apps.doctor.model import HINT, SAMPLE
from afterwit.core.judging.hints import Placement, splice
from afterwit.wire.model_text.render import Renderer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

RESPONSE = "I will look first: ls todo.txt notes.txt, then mv -n notes.txt todo.txt."
OFF = {"objective": "topk_opd", "beta": 0.0}


def check(model: PreTrainedModel, renderer: Renderer, placement: Placement) -> Iterator[Finding]:
    """Every test of the mathematics."""
    found = _Logits(model, renderer, placement)
    report = "report it with the model's name; do not train with it"
    yield tested("same weights, no hint", found.no_advantage, remedy=report)
    yield tested("teacher sensitivity", found.sensitive, remedy=report)
    yield tested("passes cut anywhere", found.invariant, remedy=report)


class _Logits:
    """The response's logits after the plain and the hinted prompt."""

    def __init__(self, model: PreTrainedModel, renderer: Renderer, placement: Placement) -> None:
        import torch

        from afterwit.learner.scoring import Row, response_logits
        from afterwit.learner.scoring.lm_head import CLOSE

        response = renderer.encode(RESPONSE)
        prompts = [renderer.prompt_ids(splice(SAMPLE, hint, placement)) for hint in ("", HINT)]
        rows = [Row(prompt=prompt, response=response) for prompt in prompts]
        with torch.no_grad():
            self.together = [logits.float() for logits in response_logits(model, rows)]
            self.alone = [response_logits(model, [row])[0].float() for row in rows]
        self.ids = torch.tensor(response)
        largest = max(logits_TV.abs().max().item() for logits_TV in self.alone)
        self.tolerance = 1e-3 if model.dtype == torch.float32 else CLOSE * largest

    def _gradient(self, teacher_TV: Tensor) -> Tensor:
        from afterwit.objective import evaluate

        sample = {"logits_current": self.alone[0], "logits_teacher": teacher_TV[None], "ids": self.ids}
        gradient_TV: Tensor = evaluate([sample], OFF).gradients[0]
        return gradient_TV

    def no_advantage(self) -> str:
        norm = self._gradient(self.alone[0]).norm().item()
        expect(norm == 0.0, f"a student equal to its teacher has a gradient of {norm:.3g}")
        return "a student equal to its teacher has no gradient"

    def sensitive(self) -> str:
        hinted, swapped = self._gradient(self.alone[1]), self._gradient(self.alone[1].flip(-1))
        expect(
            hinted.norm().item() > 0.0, "the hint moves nothing: the teacher's log-probs equal the student's"
        )
        expect((hinted - swapped).norm().item() > 0.0, "another teacher gives the same gradient")
        return (
            f"a hint moves the response (gradient norm {hinted.norm().item():.3g}), another teacher elsewhere"
        )

    def invariant(self) -> str:
        gaps = [(a - b).abs().max().item() for a, b in zip(self.together, self.alone, strict=True)]
        expect(max(gaps) <= self.tolerance, f"in one pass and apart logits differ by {max(gaps):.3g}")
        return f"in one pass and apart logits agree within {max(gaps):.2g}"
