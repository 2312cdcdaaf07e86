"""A server that answers as vLLM does, and scores prompts with a model that lies here."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from tests.engines.vllm.recorded import Recorded
from tests.learning.test_served_teacher import FromLogits

WIDEST = 100


class Scoring(Recorded):
    """Started without any flag for new weights. `scores_given`: it has vLLM's second model runner."""

    def __init__(self, model: Path, *, scores_given: bool = True) -> None:
        super().__init__(model, lora=False, runtime_lora=False, dev_mode=False, extension=False)
        self._teacher, self._scores_given = FromLogits(model, WIDEST), scores_given
        self.widest = WIDEST
        self.scored = 0
        """Prompts that it has scored."""

    def _rows(self, body: dict[str, Any]) -> str | None:
        if not self._scores_given:
            return None
        ids, params = body["token_ids"], body["sampling_params"]
        first, at = params["prompt_logprob_start"] + 1, params["prompt_logprob_token_ids"]
        (said,) = self._teacher.score([(tuple(ids[:first]), tuple(ids[first:]))], [at])
        file = io.BytesIO()
        np.save(file, np.array(said.asked, dtype=np.float32))
        return base64.b64encode(file.getvalue()).decode()

    def _whole(self, ids: list[int], params: dict[str, Any]) -> dict[str, Any]:
        answer = super()._whole(ids, params)
        if (top := params.get("prompt_logprobs")) is not None and len(ids) > 1:
            self.scored += 1
            (said,) = self._teacher.score([(tuple(ids[:1]), tuple(ids[1:]))])
            answer["prompt_logprobs"] = [
                None,
                *(
                    {
                        str(each): {"logprob": value}
                        for each, value in zip(known[:top], told[:top], strict=True)
                    }
                    | {str(token): {"logprob": own}}
                    for token, own, known, told in zip(
                        ids[1:], said.logprobs, said.top_ids, said.top_logprobs, strict=True
                    )
                ),
            ]
        return answer
