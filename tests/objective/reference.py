"""The objectives once more: float64, loops, scalars, derivatives by hand. Shares no line with the package.

A term's value at one token comes with its derivatives per vocabulary entry, as d value / d log pi(v) or
directly as d value / d (logit(v) / tau); `_to_logits` applies the softmax's Jacobian to the former.
"""

import math

import numpy as np

DEFAULTS = {
    "objective": "hybrid",
    "w_RL": 1.0,
    "w_OPD": 1.0,
    "K": 4,
    "subset": "student",
    "hint_selection": "sequence_optimal",
    "C": 1.0,
    "tail_bucket": False,
    "eps_lo": 0.2,
    "eps_hi": 0.28,
    "c_H": 0.0,
    "beta": 0.01,
    "memory_weight": 0.0,
    "aggregation": "component",
}


def log_softmax(row, tau):
    scaled = [float(z) / tau for z in row]
    top = max(scaled)
    total = math.log(math.fsum(math.exp(z - top) for z in scaled))
    return [(z - top) - total for z in scaled]


def top_ids(row, k):
    return sorted(range(len(row)), key=lambda v: (-float(row[v]), v))[:k]


def log_tail(kept):
    """The tail's log-prob and whether it still moves with the kept log-probs."""
    if not kept:
        return 0.0, False
    top = max(kept)
    held = top + math.log(math.fsum(math.exp(value - top) for value in kept))
    bounded = min(held, -1e-7)
    return math.log(-math.expm1(bounded)), held <= -1e-7


def ppo(advantage, current, old, eps_lo, eps_hi):
    """The surrogate and its derivative with respect to `current`."""
    inside = -20 <= current - old <= 20
    rho = math.exp(min(max(current - old, -20.0), 20.0))
    clipped = min(max(rho, 1 - eps_lo), 1 + eps_hi)
    if -advantage * rho >= -advantage * clipped:
        return -advantage * rho, (-advantage * rho if inside else 0.0)
    return -advantage * clipped, 0.0


def evaluate(samples, settings):
    """Loss, terms and gradients of a batch of mappings as the algorithm page names them."""
    s = DEFAULTS | settings
    tasks = [sample for sample in samples if not sample.get("memory")]
    memories = len(samples) - len(tasks)
    rl_count = sum(_has_rl(sample) for sample in tasks)
    opd_count = sum(_has_opd(sample) for sample in tasks)
    if s["aggregation"] == "batch":
        rl_count = opd_count = len(tasks)
    signs = {"rl": s["w_RL"], "opd": s["w_OPD"], "entropy": -s["c_H"], "kl_base": s["beta"]}
    over = {
        "rl": rl_count,
        "opd": opd_count,
        "entropy": len(tasks),
        "kl_base": len(tasks),
        "memory": memories,
    }
    signs["memory"] = s["memory_weight"]
    terms = dict.fromkeys(signs, 0.0)
    gradients = []
    for sample in samples:
        current = np.asarray(sample["logits_current"], dtype=np.float64)
        gradient = np.zeros_like(current)
        for name, token_terms in _sample_terms(sample, s).items():
            for position, (value, by_logprob, by_logit) in token_terms:
                share = 1.0 / (len(token_terms) * over[name])
                terms[name] += share * value
                tau = _tau(sample)
                gradient[position] += (
                    signs[name] * share * _to_logits(current[position], tau, by_logprob, by_logit)
                )
        gradients.append(gradient)
    return sum(signs[name] * terms[name] for name in terms), terms, gradients


def _to_logits(row, tau, by_logprob, by_logit):
    pi = np.exp(log_softmax(row, tau))
    total = sum(by_logprob.values())
    out = np.array([(by_logprob.get(v, 0.0) - pi[v] * total) / tau for v in range(len(row))])
    return out + np.array([by_logit.get(v, 0.0) / tau for v in range(len(row))])


def _tau(sample):
    tau = sample.get("tau") or 1.0
    return 1.0 if tau < 0.05 else tau


def _has_rl(sample):
    return bool(sample.get("reward")) and sample.get("tau", 1.0) >= 0.05


def _teachers(sample):
    teachers = sample.get("logits_teacher")
    return [] if teachers is None else list(teachers)


def _has_opd(sample):
    return len(_teachers(sample)) > 0


def _live(sample):
    mask = sample.get("mask")
    tokens = range(len(sample["logits_current"]))
    return [i for i in tokens if mask is None or mask[i]]


def _sample_terms(sample, s):
    """Term name -> [(position, (value, d/dlogprob, d/dlogit))] over the tokens that train."""
    live = _live(sample)
    if sample.get("memory"):
        return {"memory": [(i, _memory(sample, i)) for i in live]}
    out = {"entropy": [(i, _entropy(sample, i)) for i in live]}
    if sample.get("logits_base") is not None:
        out["kl_base"] = [(i, _anchor(sample, i)) for i in live]
    if _has_rl(sample) and s["objective"] in ("hybrid", "rl"):
        out["rl"] = [(i, _sampled(sample, i, sample["reward"], s["eps_lo"], s["eps_hi"])) for i in live]
    if _has_opd(sample) and s["objective"] != "rl":
        hints = _hints(sample, s, live)
        opd = _token_opd if s["objective"] == "token_opd" else _topk_opd
        out["opd"] = [(i, opd(sample, i, hints[i], s)) for i in live]
    return out


def _old(sample):
    old = sample.get("logits_old")
    return sample["logits_current"] if old is None else old


def _weight(sample, i):
    if sample.get("behaviour") is None:
        return 1.0
    tau = 1.0 if sample.get("basis") == "raw" else _tau(sample)
    old = log_softmax(_old(sample)[i], tau)[sample["ids"][i]]
    return min(math.exp(old - float(sample["behaviour"][i])), 2.0)


def _sampled(sample, i, advantage, eps_lo, eps_hi):
    y, tau, weight = int(sample["ids"][i]), _tau(sample), _weight(sample, i)
    current, old = log_softmax(sample["logits_current"][i], tau)[y], log_softmax(_old(sample)[i], tau)[y]
    value, slope = ppo(advantage, current, old, eps_lo, eps_hi)
    return weight * value, {y: weight * slope}, {}


def _token_opd(sample, i, hint, s):
    y, tau = int(sample["ids"][i]), _tau(sample)
    old, taught = log_softmax(_old(sample)[i], tau)[y], log_softmax(_teachers(sample)[hint][i], tau)[y]
    return _sampled(sample, i, taught - old, 0.2, 0.2)


def _overlap(sample, hint, i, k):
    return len(set(top_ids(_old(sample)[i], k)) & set(top_ids(_teachers(sample)[hint][i], k)))


def _hints(sample, s, live):
    """The hint of each live position. `max` returns the first of the largest."""
    hints = range(len(_teachers(sample)))
    if s["hint_selection"] == "shortest":
        return dict.fromkeys(live, 0)
    if s["hint_selection"] == "longest":
        return dict.fromkeys(live, hints[-1])
    counts = {(h, i): _overlap(sample, h, i, s["K"]) for h in hints for i in live}
    if s["hint_selection"] == "token_optimal":
        return {i: max(hints, key=lambda h: counts[h, i]) for i in live}
    best = max(hints, key=lambda h: sum(counts[h, i] for i in live))
    return dict.fromkeys(live, best)


def _subset(sample, i, hint, s):
    student, teacher = top_ids(_old(sample)[i], s["K"]), top_ids(_teachers(sample)[hint][i], s["K"])
    both = [v for v in student if v in teacher]
    return {"student": student, "teacher": teacher, "overlap": both}[s["subset"]]


def _topk_opd(sample, i, hint, s):
    tau, ids = _tau(sample), _subset(sample, i, hint, s)
    rows = (sample["logits_current"][i], _old(sample)[i], _teachers(sample)[hint][i])
    current, old, taught = ([log_softmax(row, tau)[v] for v in ids] for row in rows)
    kept, moves = list(current), False
    if s["tail_bucket"]:
        tail, moves = log_tail(kept)
        current = [*kept, tail]
        old, taught = [*old, log_tail(old)[0]], [*taught, log_tail(taught)[0]]
    mass = math.fsum(math.exp(value) for value in old)
    loss, slopes = 0.0, dict.fromkeys(ids, 0.0)
    for n, (now, before, goal) in enumerate(zip(current, old, taught, strict=True)):
        gap = goal - before
        if s["C"] > 0:
            gap = min(max(gap, -s["C"]), s["C"])
        value, slope = ppo(gap * math.exp(before) / mass, now, before, s["eps_lo"], s["eps_hi"])
        loss += value
        if n < len(ids):
            slopes[ids[n]] += slope
        elif moves:  # d tail / d log pi(v) = -pi(v) / (1 - sum of pi)
            for v, logprob in zip(ids, kept, strict=True):
                slopes[v] -= slope * math.exp(logprob - now)
    return loss, slopes, {}


def _entropy(sample, i):
    logs = log_softmax(sample["logits_current"][i], _tau(sample))
    value = -math.fsum(math.exp(x) * x for x in logs)
    return value, {}, {v: -math.exp(x) * (x + value) for v, x in enumerate(logs)}


def _anchor(sample, i):
    tau = _tau(sample)
    logs, base = log_softmax(sample["logits_current"][i], tau), log_softmax(sample["logits_base"][i], tau)
    value = math.fsum(math.exp(x) * (x - b) for x, b in zip(logs, base, strict=True))
    return (
        value,
        {},
        {v: math.exp(x) * (x - b - value) for v, (x, b) in enumerate(zip(logs, base, strict=True))},
    )


def _memory(sample, i):
    tau = _tau(sample)
    logs, base = log_softmax(sample["logits_current"][i], tau), log_softmax(sample["logits_base"][i], tau)
    value = math.fsum(math.exp(b) * (b - x) for x, b in zip(logs, base, strict=True))
    return value, {}, {v: math.exp(x) - math.exp(b) for v, (x, b) in enumerate(zip(logs, base, strict=True))}
