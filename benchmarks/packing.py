"""What does running shared tokens once save, against one sequence per row, and is the result the same?

Rows P1 to P5 of the targets, on small random Qwen3s and one torch thread:
P1  training a session of 16 turns, per row / packed;
P2  the largest difference of logits, loss and gradients over random trees, fp32 and float64;
P3  scoring that session with the student and three hint teachers, per row / packed;
P4  one turn of a 4k prompt: student and three teachers packed / one student alone;
P5  attention over a tree of 7,358 tokens, block by block / under a dense mask, and its largest allocation.
The floor is one plain causal row as long as the packed one (P4: the student). Variants take turns within a
run; process CPU time is counted; a run whose two floor timings differ by over a tenth is thrown away. P4's
model is wider: its attention has the share of the work that it has in a 4B model at that length, a sixth.
Left out: GPUs, large models.
`python benchmarks/packing.py [--runs N] [--rows P1,P3] [--out FILE]`
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config

from afterwit.learner.packing import token_ratio
from afterwit.learner.rows import Row
from afterwit.learner.score import response_logits
from afterwit.tree.blockwise import attend
from afterwit.tree.flash import kernel_for
from afterwit.tree.pack import Pack, pack
from afterwit.tree.pack import Path as TreePath
from afterwit.tree.support import hindrance

VOCABULARY, TURNS, HINTS, TOLERANCE = 4096, 16, 3, 0.10
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
WIDE = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
Job = Callable[[], object]


def model(dtype: torch.dtype = torch.float32, **shape: int) -> PreTrainedModel:
    """3 M parameters, unless `shape` says otherwise. In float64 its norms are torch's, as Hugging Face's work
    in fp32."""
    torch.manual_seed(0)
    config = Qwen3Config(
        **SHAPE | shape,
        vocab_size=VOCABULARY,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    made = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    if dtype is torch.float64:
        for parent in list(made.modules()):
            for name, child in list(parent.named_children()):
                if type(child).__name__ == "Qwen3RMSNorm":
                    setattr(parent, name, nn.RMSNorm(len(child.weight), eps=child.variance_epsilon))
    made = made.to(dtype)
    if (reason := hindrance(made)) is not None:
        raise SystemExit(f"the model cannot be packed: {reason}")
    return made


def drawn(random: Random, count: int) -> tuple[int, ...]:
    return tuple(random.randrange(VOCABULARY) for _ in range(count))


def session(*, system: int, asked: int, said: int, hint: int) -> tuple[list[Row], list[Row]]:
    """The turns of one session that only grows, and each turn's response after three hinted prompts."""
    random, context = Random(0), drawn(Random(1), system)
    students, teachers = [], []
    for _ in range(TURNS):
        prompt, response = context + drawn(random, asked), drawn(random, said)
        students.append(Row(prompt=prompt, response=response))
        teachers += [Row(prompt=prompt + drawn(random, hint), response=response) for _ in range(HINTS)]
        context = prompt + response
    return students, teachers


def train(made: PreTrainedModel, passes: Sequence[Sequence[Row]], *, packed: bool) -> None:
    made.zero_grad()
    for rows in passes:
        learned(response_logits(made, rows, packed=packed), rows).backward()


@torch.no_grad()
def score(made: PreTrainedModel, passes: Sequence[Sequence[Row]], *, packed: bool) -> None:
    for rows in passes:
        response_logits(made, rows, packed=packed)


def learned(logits: Sequence[Tensor], rows: Sequence[Row]) -> Tensor:
    """The mean negative log-prob of each response, summed."""
    pairs = zip(logits, rows, strict=True)
    return torch.stack(
        [nn.functional.cross_entropy(each, torch.tensor(row.response)) for each, row in pairs]
    ).sum()


def alone(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row] for row in rows]


def as_long_as(rows: Sequence[Row]) -> list[list[Row]]:
    """One plain row with as many tokens as these have packed, and as many responses predicted."""
    tokens = round(sum(len(row) - 1 for row in rows) / token_ratio(rows))
    said = min(sum(len(row.response) for row in rows), tokens)
    return [[Row(prompt=drawn(Random(2), tokens + 1 - said), response=drawn(Random(3), said))]]


def p1(made: PreTrainedModel) -> tuple[dict[str, Job], float]:
    rows, _ = session(system=300, asked=56, said=34, hint=0)
    return {
        "floor": lambda: train(made, as_long_as(rows), packed=False),
        "packed": lambda: train(made, [rows], packed=True),
        "per row": lambda: train(made, alone(rows), packed=False),
    }, token_ratio(rows)


def p3(made: PreTrainedModel) -> tuple[dict[str, Job], float]:
    rows = [row for each in session(system=300, asked=56, said=34, hint=35) for row in each]
    return {
        "floor": lambda: score(made, as_long_as(rows), packed=False),
        "packed": lambda: score(made, [rows], packed=True),
        "per row": lambda: score(made, alone(rows), packed=False),
    }, token_ratio(rows)


def p4(_: PreTrainedModel) -> tuple[dict[str, Job], float]:
    made, random = model(**WIDE), Random(0)
    prompt, response = drawn(random, 4096), drawn(random, 200)
    rows = [Row(prompt=prompt + drawn(random, hint), response=response) for hint in (0, 72, 72, 72)]
    tokens = sum(len(row) - 1 for row in rows) / token_ratio(rows)
    return {
        "floor": lambda: score(made, [rows[:1]], packed=False),
        "packed": lambda: score(made, [rows], packed=True),
    }, tokens / (len(rows[0]) - 1)


def tree() -> Pack:
    """The session of P3 with its hints, longer."""
    rows = [row for each in session(system=463, asked=82, said=49, hint=52) for row in each]
    return pack([TreePath(ids=row.inputs, first=row.first) for row in rows])


def p5() -> dict[str, Job]:
    packed = tree()
    tokens = len(packed.ids)
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, tokens, 64).requires_grad_() for heads in (8, 4, 4))
    seen_LL = torch.zeros(tokens, tokens, dtype=torch.bool)
    for block in packed.blocks:
        part = torch.ones(block.end - block.begin, block.until - block.seen, dtype=torch.bool)
        seen_LL[block.begin : block.end, block.seen : block.until] = part.tril() if block.causal else part

    def blocks() -> None:
        attend(query, key, value, packed.blocks, 0.125, kernel_for(query)).sum().backward()

    def dense() -> None:
        keys, values = (each.repeat_interleave(2, dim=1) for each in (key, value))
        scaled_dot_product_attention(query, keys, values, attn_mask=seen_LL, scale=0.125).sum().backward()

    def causal() -> None:
        keys, values = (each.repeat_interleave(2, dim=1) for each in (key, value))
        scaled_dot_product_attention(query, keys, values, is_causal=True, scale=0.125).sum().backward()

    return {"floor": causal, "blocks": blocks, "dense mask": dense}


def largest_allocation(job: Job) -> int:
    """Bytes of the largest tensor that the job allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        job()
    return max(
        event.nbytes() for event in found.profiler.kineto_results.events() if event.name() == "[memory]"
    )


def p2(dtype: torch.dtype, trees: int = 20) -> float:
    """The largest difference, relative to the largest value of its tensor where that is above 1."""
    made, worst = model(dtype), 0.0
    for seed in range(trees):
        rows = random_rows(Random(seed))
        found = []
        for each, packed in ((alone(rows), False), ([rows], True)):
            made.zero_grad()
            logits = [one for part in each for one in response_logits(made, part, packed=packed)]
            loss = learned(logits, rows)
            loss.backward()
            found.append([*logits, loss, *(each.grad.clone() for each in made.parameters())])
        pairs = [(one.detach(), other.detach()) for one, other in zip(*found, strict=True)]
        worst = max(worst, *(float((a - b).abs().max() / a.abs().max().clamp(min=1)) for a, b in pairs))
    return worst


def random_rows(random: Random) -> list[Row]:
    """Branches at any depth of any earlier row, its end and beyond included; duplicates."""
    rows: list[tuple[int, ...]] = [drawn(random, random.randrange(2, 60))]
    while len(rows) < 8:
        parent = random.choice(rows)
        kept = parent[: random.randrange(1, len(parent) + 1)]
        rows.append(kept + drawn(random, random.randrange(2 - min(len(kept), 2), 40)))
    cuts = [random.randrange(1, len(ids)) for ids in rows]
    return [Row(prompt=ids[:cut], response=ids[cut:]) for ids, cut in zip(rows, cuts, strict=True)]


def one_run(jobs: dict[str, Job]) -> dict[str, float] | None:
    """CPU seconds of each variant; None where the machine was not quiet."""
    spent = {}
    for name, job in [*jobs.items(), ("floor again", jobs["floor"])]:
        began = time.process_time()
        job()
        spent[name] = time.process_time() - began
    again = spent.pop("floor again")
    return None if abs(spent["floor"] - again) > TOLERANCE * max(spent["floor"], again) else spent


def measured(jobs: dict[str, Job], runs: int) -> list[dict[str, float]]:
    one_run(jobs)  # first calls allocate
    found = [run for _ in range(runs) if (run := one_run(jobs)) is not None]
    if not found:
        raise SystemExit("the machine was never quiet: the floor's two timings differed by more than a tenth")
    return found


def spread(runs: list[dict[str, float]], above: str, below: str) -> list[float]:
    """Minimum, median, maximum of a ratio of times."""
    each = sorted(run[above] / run[below] for run in runs)
    return [each[0], statistics.median(each), each[-1]]


def line(
    name: str, what: str, value: Sequence[float], target: float, *, least: bool, **more: Any
) -> dict[str, Any]:
    """One row of the table, printed as it is found."""
    middle = value[len(value) // 2]
    passed = middle >= target if least else middle <= target
    numbers = " ".join(f"{each:.3g}" for each in value)
    sign, verdict = (">=" if least else "<="), ("pass" if passed else "MISS")
    print(f"{name}  {what}: {numbers}  target {sign} {target:g}  {verdict}  {more or ''}", flush=True)
    return {
        "row": name,
        "what": what,
        "value": value,
        "target": f"{sign} {target:g}",
        "passed": passed,
        **more,
    }


def rows_of(asked: set[str], runs: int) -> list[dict[str, Any]]:
    made, lines = model(), []
    for name, build, what, least, target in (
        ("P1", p1, "training, per row / packed", True, 7.5),
        ("P3", p3, "scoring, per row / packed", True, 9.0),
        ("P4", p4, "student and teachers packed / student", False, 1.35),
    ):
        if name in asked:
            jobs, floor = build(made)
            found = measured(jobs, runs)
            ratio = spread(found, *(("per row", "packed") if least else ("packed", "floor")))
            more = {"token_ratio": round(floor, 2), "runs": len(found)}
            more["packed / floor"] = [round(each, 3) for each in spread(found, "packed", "floor")]
            lines.append(line(name, what, ratio, target, least=least, **more))
    if "P2" in asked:
        lines.append(line("P2", "error, fp32", [p2(torch.float32)], 5e-6, least=False))
        lines.append(line("P2", "error, float64", [p2(torch.float64)], 1e-12, least=False))
    if "P5" in asked:
        jobs, tokens = p5(), len(tree().ids)
        found = measured(jobs, runs)
        more = {"tokens": tokens, "runs": len(found)}
        lines.append(
            line(
                "P5", "blocks / dense mask", spread(found, "blocks", "dense mask"), 0.45, least=False, **more
            )
        )
        share = largest_allocation(jobs["blocks"]) / tokens**2
        lines.append(line("P5", "largest allocation, bytes / T^2", [share], 1.0, least=False))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", default="P1,P2,P3,P4,P5")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "question": "what packing saves, CPU time: min, median, max",
        "commit": commit.stdout.strip(),
        "machine": {
            "platform": platform.platform(),
            "cpu": platform.processor(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "runs": asked.runs,
        "result": rows_of(set(asked.rows.split(",")), asked.runs),
    }
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
