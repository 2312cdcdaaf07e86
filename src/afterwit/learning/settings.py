"""The learner's settings, each default declared here once. What is minimised is in `ObjectiveSettings`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from afterwit.ranges import above, at_least, at_most, below, one_of_its_choices, times_of_day, within
from afterwit.turn import AdapterPolicy, Division
from afterwit.verdict import Review, ReviewRule

NAMED_MODELS = ("base", "live", "ema")
"""Values of `teacher` and `reference` that do not name a checkpoint."""
SERVER = "server"
"""One more value of `teacher`."""
Precision = Literal["float32", "bfloat16", "float64"]
ADAPTER_RATE, MEASURED_WIDTH, NARROWING = 5e-4, 576, 0.8
"""The step size at which an adapter of a model so wide learned best, and the power by which it falls with the
width."""
WHOLE_SHARE = 0.1
"""Whole weights want a tenth of an adapter's step (LoRA Without Regret)."""
PASS_TOKENS = 4096
"""Tokens of a pass, where memory allows it."""
MOST_LR = 0.1
"""A step of AdamW moves each weight by about the rate: a larger one leaves nothing of any model."""
LossBackend = Literal["fused", "plain"]
PackingChoice = Literal["auto", "off"]


def rate_for(width: int, *, adapter: bool) -> float:
    """The default step size of AdamW for a model whose hidden states have this width."""
    rate: float = ADAPTER_RATE * (MEASURED_WIDTH / width) ** NARROWING
    return rate if adapter else WHOLE_SHARE * rate


def threads_for(cores: int, *, load: float, processes: int = 1) -> int:
    """The default number of torch's threads: half of the cores, or those that are free if they are fewer, for
    this many processes together. `load`: the mean number of running tasks."""
    return max(1, min(cores // 2, cores - math.ceil(load)) // processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """The optimiser, what makes a batch, and which versions are kept."""

    enabled: bool = True
    """false: turns are recorded, judged and wait for `afterwit train`."""
    lr: float | None = None
    """AdamW's constant step size. Unset: 5e-4 * (576 / width)^0.8 for an adapter (1.5e-4 at a hidden
    width of 2560), a tenth of that for whole weights; measured at widths of 96 and 576. Published for 4B
    to 8B: 1e-4 and 1e-5."""
    adapters: Division = "shared"
    """The weights that learn. `shared`: one adapter, or whole weights, for all keys. `per_key`: an
    adapter for each key. `per_session_group`: also one for each group of a key's sessions (header
    `X-Session-Group`)."""
    shared_keys: tuple[str, ...] = ()
    """Keys that teach and use the shared adapter instead of their own."""
    teaches: Literal["own", "both"] = "own"
    """The adapters that learn from a key with its own: `own`, or `both`: the shared one learns later,
    from replayed turns."""
    lora_rank: int = 16
    """Rank of the LoRA adapter on every linear layer but the head; 16 as published. 0: all weights
    train."""
    lora_alpha: float = 32.0
    """The adapter is scaled by lora_alpha / lora_rank; 32 as published."""
    beta1: float = 0.9
    """AdamW's decay of the gradient's mean; as published."""
    beta2: float = 0.98
    """AdamW's decay of the gradient's square; as published."""
    adam_eps: float = 0.03
    """AdamW's epsilon as a gradient's norm: each weight gets it divided by the square root of the number
    of weights. 0: 1e-8 each, as published."""
    weight_decay: float = 0.1
    """AdamW's decay of matrices, not of norms and biases; as published."""
    clip: float = 1.0
    """Largest global norm of the gradient; as published."""
    batch: int = 4
    """New judged turns that start an update. The published 16, for many people, had almost no effect in one
    person's 50 conversations."""
    min_batch: int = 2
    """Turns that suffice after `max_wait_s`."""
    max_wait_s: float = 1800.0
    """Seconds that the oldest judged turn waits for a full batch."""
    hours: str | None = None
    """Hours by this machine's clock in which practice may run, such as `22:00-07:00`; new turns train at
    any hour. Unset: always."""
    turns_per_session_per_update: int = 1
    """Turns of one session that wait for each other, at most `max_wait_s`, to share an update: less
    work, but later learning. 1: no waiting."""
    batches_per_update: int = 4
    """Most batches in an update when turns pile up; an update takes a quarter of the queue. 1: always
    `batch` turns."""
    epochs: int = 1
    """Optimiser steps over one batch; 1 as published."""
    practice_epochs: int = 3
    """As `epochs`, over a batch of practised answers alone."""
    practice_step: float = 0.5
    """Share of `lr` for each of these steps. They shrink to a quarter as the lesson is learned."""
    max_move: float = 0.1
    """Mean |log pi - log pi_old| of a batch's tokens, in nats, after which no further step is taken. 0:
    no bound."""
    replay: int = 4
    """Trained turns with hints that join each update, which takes up to twice as long. With 0, as published,
    a model fell from 0.69 of a preference to 0.22."""
    max_staleness: int = 16
    """Age in versions of a turn's oldest token at which the turn is skipped as too far off policy."""
    stop_at_teacher: bool = True
    """Whether distillation leaves out a disliked answer that the teacher would [make
    likelier](algorithm.md#stop-at-the-teacher); off as published."""
    update_gate: bool = False
    """Whether an update needs a new turn with a weighted term; off as published."""
    source_share: float = 0.25
    """Largest share of an update's new turns from one source (a key) if others wait, or an equal part if
    that is more. 1: no limit."""
    source_turns_a_day: int = 0
    """New turns of one source that train within 24 hours. 0: no limit. Set it before strangers get
    keys."""
    review: Review = Review.FLAGGED
    """Judged turns that wait for [review](steering.md#review): `all`, `flagged` or `off`."""
    tool_hints: bool = False
    """Whether tools' results alone may give a hint, as published. If not, a person must first accept the
    turn or approve the outcome."""
    teacher: str = "base"
    """The weights that read the hint: the policy's original (`base`) or present ones (`live`), their
    running mean (`ema`), a [server](models.md#the-server-as-teacher) (`server`), or the folder or hub id
    of a checkpoint with the same tokenizer."""
    teacher_url: str | None = None
    """URL of the `server` teacher, without `/v1`. Unset: `engine.url` without adapter."""
    teacher_key_env: str | None = None
    """Environment variable with the key of `teacher_url`."""
    teacher_device: str | None = None
    """Device of another checkpoint as teacher. Unset: `learner.device`."""
    reference: str = "base"
    """The weights near which `objective.beta` keeps the policy; as for `teacher`."""
    reference_reads_hints: bool = True
    """Whether the reference reads a turn's first hint. If not, [the KL takes back what hints
    taught](algorithm.md#the-reference-kl-and-the-entropy-termspy)."""
    reference_device: str | None = None
    """Device of another checkpoint as reference. Unset: `learner.device`."""
    ema_decay: float = 0.99
    """Share of the `ema` mean that an update keeps; 0: live, 1: base."""
    max_tokens: int = 32_768
    """Most tokens of prompt, hint and response of a turn that trains; bounds memory."""
    micro_batch_tokens: int | None = None
    """Tokens of one pass (packed: without the longest row's). Changes memory and speed, not the result.
    Unset: 4096, fewer on a small machine without a GPU."""
    packing: PackingChoice = "auto"
    """`auto`: tokens that rows share (sessions, hints, retries) run once if that saves a sixth and the
    model allows it. `off`: each row runs alone."""
    loss_backend: LossBackend = "fused"
    """`fused`: loss and gradient for a chunk of rows at a time. `plain`: for all rows at once, by
    autograd."""
    checkpointing: bool | None = None
    """Whether the backward pass recomputes activations: half the memory and 1.4 times the work with
    SmolLM2. Unset: in passes of more than `micro_batch_tokens`."""
    device: str = "auto"
    """torch device. `auto`: CUDA if there is one, else the CPU."""
    dtype: Precision = "float32"
    """Precision of passes and written versions; use the engine's. With bfloat16 the optimiser keeps fp32
    master weights."""
    threads: int = 0
    """CPU threads of torch. 0: half of the cores, fewer if they are busy when the learner starts."""
    measure_effects: bool = True
    """Whether one more forward pass, of at most a tenth of an update's work or 4,096 tokens, measures
    its effect for `afterwit ledger`."""
    keep_versions: int = 5
    """Newest versions that keep their weights; so do older ones at doubling distances."""
    mismatch_alarm: float = 0.2
    """Mean |log pi_old - log pi_b| under equal weights, in nats, that raises an alarm."""
    poll_s: float = 1.0
    """Seconds between searches for judged turns."""
    processes: int = 1
    """Processes that share an update's passes, each with the policy on its own device; at most `batch`.
    Under `torchrun`, its number."""
    shards: int = 1
    """Processes that share one copy of whole weights, gradient and optimiser state (FSDP2). Divides
    `processes`; all need the home on a shared disk."""
    patience_s: float = 600.0
    """Seconds that processes wait for each other in an update; then all end, and `serve` restarts them.
    A single process that is silent so long is reported as hanging."""
    lease_s: float = 900.0
    """Seconds until another learner may take claimed turns; renewed during the update."""
    retry_s: float = 30.0
    """Seconds until a released batch is tried again; doubles up to an hour."""
    max_attempts: int = 6
    """Failed updates after which a turn ends as `learner_failed`; `requeue` puts it back."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        if self.hours is not None:
            times_of_day(self.hours)
        at_least(self, 1, "batch", "min_batch", "turns_per_session_per_update", "batches_per_update")
        at_least(self, 1, "epochs", "practice_epochs", "micro_batch_tokens", "max_tokens", "keep_versions")
        at_least(self, 1, "max_attempts", "processes", "shards")
        at_least(self, 0, "replay", "max_staleness", "max_wait_s", "weight_decay", "adam_eps", "max_move")
        below(self, inf, "max_wait_s", "adam_eps")
        at_least(self, 0, "mismatch_alarm", "threads", "source_turns_a_day", "lora_rank", "beta1", "beta2")
        above(self, 0, "lr", "lora_alpha", "clip", "poll_s", "lease_s", "retry_s", "patience_s")
        above(self, 0, "practice_step")
        at_most(self, MOST_LR, "lr")
        below(self, 1, "beta1", "beta2")
        within(self, 0, 1, "ema_decay", "source_share")
        if self.adapters != "shared" and not self.lora_rank:
            raise ValueError(
                f"adapters is {self.adapters!r}, but lora_rank is 0: whole weights are shared by all, so set"
                " lora_rank to 16"
            )
        if self.teaches == "both" and self.update_gate:
            raise ValueError(
                "teaches is 'both', whose updates of the shared adapter have replayed turns alone, but"
                " update_gate is on and needs new ones: set update_gate = false"
            )
        if self.reference == SERVER:
            raise ValueError("reference is 'server', but the KL needs the whole distribution: name a model")
        if self.teacher_url is not None and self.teacher != SERVER:
            raise ValueError(f"teacher_url is given, but teacher is {self.teacher!r}: set teacher = 'server'")
        if self.min_batch > self.batch:
            raise ValueError(f"min_batch is {self.min_batch}, but a batch is {self.batch}")
        if self.processes > self.batch:
            raise ValueError(
                f"processes is {self.processes}, but a batch is {self.batch}: some would have no turn"
            )
        if self.shards > 1:
            self._require_shardable()
        if self.turns_per_session_per_update > self.batch:
            raise ValueError(
                f"turns_per_session_per_update is {self.turns_per_session_per_update}, but a batch is"
                f" {self.batch}: they would never fit into one update"
            )

    @property
    def adapter_policy(self) -> AdapterPolicy:
        """The rule by which a key or a group of sessions has an adapter."""
        return AdapterPolicy(division=self.adapters, shared_keys=self.shared_keys)

    def _require_shardable(self) -> None:
        if self.processes > 1 and self.processes % self.shards:
            raise ValueError(
                f"processes is {self.processes}, which is not a multiple of shards, {self.shards}"
            )
        if self.lora_rank:
            raise ValueError(
                f"shards is {self.shards}, but an adapter of rank {self.lora_rank} trains: only full weights"
                " are sharded, so set lora_rank = 0 or leave shards out"
            )
        for name, value in {"teacher": self.teacher, "reference": self.reference}.items():
            if value not in ("base", "live", SERVER):
                raise ValueError(f"{name} is {value!r}, but with shards it is 'base' or 'live'")

    @property
    def teaching(self) -> ReviewRule:
        """The rule by which turns train without a person's review."""
        return ReviewRule(review=self.review, tool_hints=self.tool_hints)

    def settled(self, width: int) -> LearnerSettings:
        """With the step size for a model whose hidden states have this width, if none is given."""
        return self if self.lr is not None else replace(self, lr=rate_for(width, adapter=self.lora_rank > 0))

    @property
    def pass_tokens(self) -> int:
        """Tokens of one pass."""
        return PASS_TOKENS if self.micro_batch_tokens is None else self.micro_batch_tokens

    @property
    def keeps_mean(self) -> bool:
        """Whether teacher or reference is the policy's running mean."""
        return "ema" in (self.teacher, self.reference)

    @property
    def rate(self) -> float:
        """The step size. ValueError if it follows from the model's width: `settled` comes first."""
        if self.lr is None:
            raise ValueError("learner.lr is not given, and the width of the model is not known")
        return self.lr

    def alike(self, other: LearnerSettings) -> bool:
        """Whether they differ in nothing but the size and number of steps, which each update sets."""
        return replace(self, lr=other.lr, epochs=other.epochs) == other

    @property
    def checkpoints(self) -> dict[str, str]:
        """The settings among `teacher` and `reference` that name another checkpoint."""
        named = {"teacher": self.teacher, "reference": self.reference}
        return {name: value for name, value in named.items() if value not in (*NAMED_MODELS, SERVER)}
