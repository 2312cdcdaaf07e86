"""Each term at one token: its value, its derivatives per log pi(v), and those per logit(v) / tau.

A term is a function of a turn, a position and the hint that teaches there. Parts of the reference.
"""

import math


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
    return math.log(-math.expm1(min(held, -1e-7))), held <= -1e-7


def ppo(advantage, current, old, eps_lo, eps_hi):
    """The surrogate and its derivative with respect to `current`."""
    inside = -20 <= current - old <= 20
    rho = math.exp(min(max(current - old, -20.0), 20.0))
    clipped = min(max(rho, 1 - eps_lo), 1 + eps_hi)
    if -advantage * rho >= -advantage * clipped:
        return -advantage * rho, (-advantage * rho if inside else 0.0)
    return -advantage * clipped, 0.0


def rl(turn, i, hint):
    return _surrogate(turn, i, turn.advantage, turn.s["eps_lo"], turn.s["eps_hi"])


def token_opd(turn, i, hint):
    return _surrogate(turn, i, _gap(turn, i, hint), turn.s["token_eps_lo"], turn.s["token_eps_hi"])


def combine(turn, i, hint):
    advantage = 0.0 if hint is None else turn.s["w_OPD"] * _gap(turn, i, hint)
    advantage += 0.0 if turn.advantage is None else turn.s["w_RL"] * turn.advantage
    return _surrogate(turn, i, advantage, turn.s["eps_lo"], turn.s["eps_hi"])


def _surrogate(turn, i, advantage, eps_lo, eps_hi):
    y = turn.ids[i]
    current, old = log_softmax(turn.current[i], turn.tau)[y], log_softmax(turn.old[i], turn.tau)[y]
    value, slope = ppo(advantage, current, old, eps_lo, eps_hi)
    weight = _weight(turn, i)
    return weight * value, {y: weight * slope}, {}


def _weight(turn, i):
    """min(pi_old / pi_b, cap), both on the basis of the engine's values."""
    if turn.behaviour is None or turn.greedy:
        return 1.0
    old = log_softmax(turn.old[i], 1.0 if turn.raw else turn.tau)[turn.ids[i]]
    return min(math.exp(old - float(turn.behaviour[i])), turn.s["is_cap"])


def _gap(turn, i, hint):
    y = turn.ids[i]
    return log_softmax(turn.teachers[hint][i], turn.tau)[y] - log_softmax(turn.old[i], turn.tau)[y]


def topk_opd(turn, i, hint):
    s, ids = turn.s, _subset(turn, i, hint)
    rows = (turn.current[i], turn.old[i], turn.teachers[hint][i])
    current, old, taught = ([log_softmax(row, turn.tau)[v] for v in ids] for row in rows)
    kept, moves = list(current), False
    if s["tail_bucket"]:
        tail, moves = log_tail(kept)
        current = [*kept, tail]
        old, taught = [*old, log_tail(old)[0]], [*taught, log_tail(taught)[0]]
    mass = math.fsum(math.exp(value) for value in old)
    loss, slopes = 0.0, []
    for now, before, goal in zip(current, old, taught, strict=True):
        gap = goal - before
        if s["C"] > 0:
            gap = min(max(gap, -s["C"]), s["C"])
        value, slope = ppo(gap * math.exp(before) / mass, now, before, s["eps_lo"], s["eps_hi"])
        loss += value
        slopes.append(slope)
    return loss, _per_id(ids, current, slopes, moves), {}


def _subset(turn, i, hint):
    student, teacher = top_ids(turn.old[i], turn.s["K"]), top_ids(turn.teachers[hint][i], turn.s["K"])
    both = [v for v in student if v in teacher]
    return {"student": student, "teacher": teacher, "overlap": both}[turn.s["subset"]]


def topk_distill(turn, i, hint):
    ids = top_ids(turn.teachers[hint][i], turn.s["K"])
    rows = (turn.current[i], turn.teachers[hint][i])
    now, goal = ([log_softmax(row, turn.tau)[v] for v in ids] for row in rows)
    tail, moves = log_tail(now)
    now, goal = [*now, tail], [*goal, log_tail(goal)[0]]
    loss = math.fsum(math.exp(p) * (p - q) for p, q in zip(now, goal, strict=True))
    slopes = [math.exp(p) * (p - q + 1) for p, q in zip(now, goal, strict=True)]
    return loss, _per_id(ids, now, slopes, moves), {}


def _per_id(ids, current, slopes, moves):
    """Slopes of bins as slopes of ids: d tail / d log pi(v) = -pi(v) / pi(tail), while the tail moves."""
    found = dict(zip(ids, slopes, strict=False))
    if moves:
        for v, logprob in zip(ids, current, strict=False):
            found[v] -= slopes[-1] * math.exp(logprob - current[-1])
    return found


def entropy(turn, i, hint):
    logs = log_softmax(turn.current[i], turn.tau)
    value = -math.fsum(math.exp(x) * x for x in logs)
    return value, {}, {v: -math.exp(x) * (x + value) for v, x in enumerate(logs)}


def reference_kl(turn, i, hint):
    logs, base = log_softmax(turn.current[i], turn.tau), log_softmax(turn.base[i], turn.tau)
    pairs = list(zip(logs, base, strict=True))
    value = math.fsum(math.exp(x) * (x - b) for x, b in pairs)
    return value, {}, {v: math.exp(x) * (x - b - value) for v, (x, b) in enumerate(pairs)}
