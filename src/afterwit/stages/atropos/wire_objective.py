"""What the rows of a batch let the objective learn from. Pure."""

from __future__ import annotations

from dataclasses import replace

from afterwit.objective.settings import ObjectiveSettings

AT_SAMPLED = {
    "hybrid": "hybrid_token",
    "hybrid_distill": "hybrid_token",
    "topk_opd": "token_opd",
    "topk_distill": "token_opd",
}
"""Rows of the sampled id alone: what learns from more ids learns from that one."""
AT_TOP_K = {"hybrid": "hybrid_distill"}


def wire_objective(settings: ObjectiveSettings, *, top_k: bool) -> ObjectiveSettings:
    """The objective on rows of several ids (`top_k`), or of the sampled one.

    The student's own likeliest ids nobody scored, so top-K OPD reads the teacher's.
    """
    names = AT_TOP_K if top_k else AT_SAMPLED
    return replace(settings, objective=names.get(settings.objective, settings.objective), subset="teacher")
