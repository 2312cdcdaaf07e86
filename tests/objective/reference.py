"""The objectives written again from their statement alone: float64, loops, scalars, derivatives by hand.

Shares no line with the package. Here is what a batch makes of its samples: baselines, routing, hints, means
and denominators. `reference_tokens` has the value and the derivatives of each term at one token.
"""

import hashlib
import math

import numpy as np

from . import reference_tokens as tokens
from .reference_tokens import log_softmax, top_ids

DEFAULTS = {
    "objective": "hybrid",
    "w_RL": 0.2,
    "w_OPD": 1.0,
    "K": None,
    "subset": "student",
    "hint_selection": "sequence_optimal",
    "routing": "all",
    "confident_above": 0.95,
    "C": 1.0,
    "tail_bucket": False,
    "eps_lo": 0.2,
    "eps_hi": 0.28,
    "token_eps_lo": 0.2,
    "token_eps_hi": 0.2,
    "baseline": "none",
    "baseline_decay": 0.9,
    "is_cap": 2.0,
    "c_H": 0.0,
    "beta": 0.1,
    "aggregation": "component",
}

STATED = {
    "hybrid": {"rl": tokens.rl, "opd": tokens.topk_opd},
    "topk_opd": {"opd": tokens.topk_opd},
    "token_opd": {"opd": tokens.token_opd},
    "topk_distill": {"opd": tokens.topk_distill},
    "combine": {"combine": tokens.combine},
    "rl": {"rl": tokens.rl},
}
"""The objectives that are stated here a second time, and the terms of each."""


def evaluate(samples, settings, running_mean=0.0):
    """Loss, terms and gradients of a batch of mappings as the algorithm page names them."""
    s = DEFAULTS | settings
    if s["K"] is None:
        s["K"] = 50 if s["objective"] == "topk_distill" else 4
    batch = [Turn(sample, s) for sample in samples]
    for turn, advantage in zip(batch, _advantages(batch, s, running_mean), strict=True):
        turn.advantage, turn.rl = advantage, advantage is not None
    by_turn = [turn.terms() for turn in batch]
    signs = {
        "rl": s["w_RL"],
        "opd": s["w_OPD"],
        "combine": 1.0,
        "entropy": -s["c_H"],
        "reference_kl": s["beta"],
    }
    terms, gradients = dict.fromkeys(signs, 0.0), []
    for turn, carried in zip(batch, by_turn, strict=True):
        gradient = np.zeros(np.shape(turn.current))
        for name, at_tokens in carried.items():
            share = 1.0 / (len(at_tokens) * _over(name, by_turn, len(batch), s))
            for position, (value, by_logprob, by_logit) in at_tokens:
                terms[name] += share * value
                slope = _to_logits(turn.current[position], turn.tau, by_logprob, by_logit)
                gradient[position] += signs[name] * share * slope
        gradients.append(gradient)
    return sum(signs[name] * terms[name] for name in terms), terms, gradients


def _over(name, by_turn, samples, s):
    """The denominator of a term."""
    if name in ("entropy", "reference_kl") or s["aggregation"] == "batch":
        return samples
    return sum(name in carried for carried in by_turn)


def _to_logits(row, tau, by_logprob, by_logit):
    """The softmax's Jacobian on derivatives per log-prob, and what is per scaled logit already."""
    pi = np.exp(log_softmax(row, tau))
    total = sum(by_logprob.values())
    return np.array(
        [(by_logprob.get(v, 0.0) - pi[v] * total + by_logit.get(v, 0.0)) / tau for v in range(len(row))]
    )


def _advantages(turns, s, mean):
    """The reward less its baseline of each turn that has an RL part, else None: so in a group that agrees."""
    if s["baseline"] == "running":
        return [turn.reward - mean if turn.rl else None for turn in turns]
    if s["baseline"] == "none":
        return [turn.reward if turn.rl else None for turn in turns]
    return [_z_score(turn, [o.reward for o in turns if o.group == turn.group]) for turn in turns]


def _z_score(turn, company):
    if not turn.rl:
        return None
    if turn.group is None or len(company) == 1:
        return turn.reward
    middle = math.fsum(company) / len(company)
    spread = math.sqrt(math.fsum((r - middle) ** 2 for r in company) / (len(company) - 1))
    return (turn.reward - middle) / spread if spread > 0 else None


class Turn:
    """One sample read as the settings say."""

    def __init__(self, sample, s):
        self.s = s
        self.current = sample["logits_current"]
        self.old = self.current if sample.get("logits_old") is None else sample["logits_old"]
        teachers = sample.get("logits_teacher")
        self.teachers = [] if teachers is None else list(teachers)
        self.base = sample.get("logits_base")
        self.ids = [int(v) for v in sample.get("ids", ())]
        self.behaviour = sample.get("behaviour")
        self.raw = sample.get("basis") == "raw"
        self.group = sample.get("group")
        self.reward = float(sample.get("reward") or 0.0)
        tau = 1.0 if sample.get("tau") is None else sample["tau"]
        greedy = tau < 0.05
        self.tau = 1.0 if greedy else tau
        self.greedy = greedy
        mask = sample.get("mask")
        self.live = [i for i in range(len(self.current)) if mask is None or mask[i]]
        self.advantage = None
        self.rl = self.reward != 0 and not greedy
        self.opd = len(self.teachers) > 0
        if s["routing"] == "routed":
            self._route()

    def _route(self):
        """A failure with a hint: OPD alone. A success: RL alone, or nothing if the policy was sure."""
        stated = STATED[self.s["objective"]]
        rewards_teach = "rl" in stated or "combine" in stated
        hints_teach = ("opd" in stated or "combine" in stated) and self.s["w_OPD"] > 0
        self.rl, self.opd = self.rl and rewards_teach, self.opd and hints_teach
        if self.reward > 0:
            self.opd = False
            if self.behaviour is not None:
                sampled = [math.exp(float(self.behaviour[i])) for i in self.live]
                if math.fsum(sampled) / len(sampled) >= self.s["confident_above"]:
                    self.rl = False
        elif self.opd:
            self.rl = False

    def terms(self):
        """Term name -> [(position, (value, d / d log-prob, d / d scaled logit))] of the tokens that train."""
        found, objective = {"entropy": self._each(tokens.entropy)}, self.s["objective"]
        if self.base is not None:
            found["reference_kl"] = self._each(tokens.reference_kl)
        if objective == "combine":
            if (self.rl and self.s["w_RL"] > 0) or (self.opd and self.s["w_OPD"] > 0):
                found["combine"] = self._each(tokens.combine)
            return found
        carried = {"rl": self.rl, "opd": self.opd}
        return found | {name: self._each(term) for name, term in STATED[objective].items() if carried[name]}

    def _each(self, term):
        hints = self._hints() if self.opd else {}
        return [(i, term(self, i, hints.get(i))) for i in self.live]

    def _hints(self):
        """The hint of each live position. `max` returns the first of the largest."""
        hints, rule = range(len(self.teachers)), self.s["hint_selection"]
        if rule == "shortest":
            return dict.fromkeys(self.live, 0)
        if rule == "longest":
            return dict.fromkeys(self.live, hints[-1])
        if rule == "random":
            words = b"".join(v.to_bytes(8, "little") for v in self.ids)
            number = int(hashlib.sha256(words).hexdigest()[:16], 16)
            return dict.fromkeys(self.live, number % len(hints))
        counts = {(h, i): self._overlap(h, i) for h in hints for i in self.live}
        if rule == "token_optimal":
            return {i: max(hints, key=lambda h: counts[h, i]) for i in self.live}
        assert rule == "sequence_optimal", f"the reference does not state {rule!r}"
        best = max(hints, key=lambda h: sum(counts[h, i] for i in self.live))
        return dict.fromkeys(self.live, best)

    def _overlap(self, hint, i):
        return len(set(top_ids(self.old[i], self.s["K"])) & set(top_ids(self.teachers[hint][i], self.s["K"])))
