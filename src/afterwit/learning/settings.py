"""The learner's settings, each default declared here once. What is minimised is in `ObjectiveSettings`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, Literal

from afterwit.adapters import AdapterPolicy, Division
from afterwit.ranges import above, at_least, below, one_of_its_choices, within
from afterwit.teaching.review import Review, Rule

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
LossBackend = Literal["fused", "plain"]
PackingChoice = Literal["auto", "off"]


def rate_for(width: int, *, adapter: bool) -> float:
    """The default step size of AdamW for a model whose hidden states have this width."""
    rate: float = ADAPTER_RATE * (MEASURED_WIDTH / width) ** NARROWING
    return rate if adapter else WHOLE_SHARE * rate


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How weights move: the optimiser, what makes a batch, what is kept."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enabled: bool = True
    """Whether `serve` trains. False: turns are recorded and judged, and wait; `afterwit train` still takes
    them."""
    lr: float | None = None
    """Step size of AdamW, constant without warm-up. Not given: 5e-4 * (576 / width)^0.8 for an adapter of a
    model with hidden states so wide, a tenth for whole weights: 2.1e-3 at a width of 96, 5e-4 at 576,
    1.5e-4 at 2560, 1e-4 at 4096. Measured at 96 and 576; 1e-4 and 1e-5 are published for 4 to 8 billion
    weights. A rate that is too small is silent: at 1e-4 a model of width 576 learned next to nothing."""
    adapters: Division = "shared"
    """The weights that learn. `shared`: one adapter, or the whole weights, for all keys. `per_key`: each API
    key has an adapter of its own, which it alone teaches and is served by. `per_session_group`: within a key,
    each group of sessions that the client names (header `X-Session-Group`) has one; sessions without a group
    have the key's."""
    shared_keys: tuple[str, ...] = ()
    """Names of keys that teach the shared adapter and are served by it, instead of an adapter of their
    own."""
    teaches: Literal["own", "both"] = "own"
    """The adapters that learn from a key with its own. `own`: that adapter alone. `both`: turns that trained
    it also train the shared one once, as replayed turns, a batch at a time."""
    lora_rank: int = 16
    """Rank of the adapter (LoRA) on every linear layer but the head; 16 as published. 0: all weights train,
    which needs optimiser state for every weight, and a second model for the base."""
    lora_alpha: float = 32.0
    """The adapter is scaled by lora_alpha / lora_rank; 32 as published."""
    beta1: float = 0.9
    """AdamW's decay of the gradient's mean; as published."""
    beta2: float = 0.98
    """AdamW's decay of the gradient's square: a memory of 50 updates, as published."""
    weight_decay: float = 0.1
    """AdamW's decoupled decay of matrices (norms and biases have none); as published."""
    clip: float = 1.0
    """The gradient's global norm is clipped to this; as published."""
    batch: int = 4
    """New turns per update; an update starts when this many are judged. Published is 16, for many people at
    once. With 16 one person would see almost no effect in 50 conversations, with 4 most of what they taught
    (the demo's page has figures). Where turns pile up, an update takes up to `batches_per_update` batches."""
    min_batch: int = 2
    """Turns that are enough once the oldest has waited `max_wait_s`. Fewer would make a noisy step."""
    max_wait_s: float = 1800.0
    """Seconds that the oldest judged turn waits for a full batch: an evening's use is learned the same
    evening."""
    turns_per_session_per_update: int = 1
    """Turns of one session that wait for each other, to train in one update and share their prefix: less work
    per turn, but learned later. They wait at most `max_wait_s`, until their session ends, and only while they
    are sure to train before they are too old. 1 holds nothing back."""
    batches_per_update: int = 4
    """Batches that one update takes at most. It takes more than one only when turns pile up (a quarter of the
    queue), because every update makes all waiting turns older by one version. 1: always `batch` turns."""
    epochs: int = 1
    """Optimiser steps over one batch. Above 1 the ratio's clipping bites; 1 as published."""
    replay: int = 4
    """Turns with hints that trained before and join each update, pi_old computed again; 0 as published. They
    keep what was learned where the teacher is: thanks alone pull it back to the base, or drive it on. Without
    them a published model went from 0.69 of a preference to 0.22 (`w_rl` 0.2), or from 0.72 to 0.97 with five
    times the KL to the base (`w_rl` 1); with four it stayed. An update takes up to twice as long."""
    max_staleness: int = 16
    """A turn whose oldest token was sampled more versions ago than this is skipped (off-policy too far)."""
    update_gate: bool = False
    """No update unless a new turn of the batch carries a term with a weight; replayed turns alone are not
    enough. Off as published. Without it, replaying small batches broke a tiny model in 500 interactions."""
    source_share: float = 0.25
    """The most of an update's new turns that one source (a key) gives if others
    have turns too, but at least an equal part; 1: no limit. One voice must not fill what several share."""
    source_turns_a_day: int = 0
    """New turns of one source that train within 24 hours; the rest waits, or becomes too old. 0: no limit,
    because an agent may make thousands; set it before strangers get keys."""
    review: Review = Review.FLAGGED
    """The judged turns that train only once you accepted them (`afterwit review`): `all`, those with a
    doubtful hint (`flagged`: links, commands, standing orders), or none (`off`). A turn against what several
    other sources said waits in any case."""
    tool_hints: bool = False
    """Whether a hint may come from what tools returned alone, as published. Off: such a turn trains by its
    reward, and by its hint only once a person accepted it or approved what came of it. A web page is no
    teacher."""
    teacher: str = "base"
    """The weights that read the hint: the frozen ones that the policy began with (`base`), the policy's at
    the start of the update (`live`), or their running mean (`ema`), which begins at the base. `server`: a
    vLLM or SGLang server scores the hints (`teacher_url`), for the objectives that need no more than its
    top-K. Any other value is the folder or hub id of a checkpoint with the same tokenizer, which is loaded
    frozen."""
    teacher_url: str | None = None
    """URL of the server of `teacher = "server"`, without `/v1`; its model has the same tokenizer. Not
    given: `engine.url`, whose model without adapter is the base."""
    teacher_key_env: str | None = None
    """Environment variable that holds the API key of `teacher_url`, if it needs one."""
    teacher_device: str | None = None
    """Device of a teacher that is another checkpoint. Not given: `learner.device`."""
    reference: str = "base"
    """The weights whose distribution the reference KL (`objective.beta`) keeps the policy near; as
    `teacher`."""
    reference_device: str | None = None
    """Device of a reference that is another checkpoint. Not given: `learner.device`."""
    ema_decay: float = 0.99
    """Share of the mean that an update keeps (`teacher` or `reference` is "ema"): 0.99 remembers about 100
    updates. 0 gives the live policy, 1 the base."""
    max_tokens: int = 32_768
    """Most tokens of prompt, hint and response of a turn that trains; it bounds the learner's memory. The
    model's own context bounds them too."""
    micro_batch_tokens: int = 4096
    """Tokens of one forward and backward pass: all of padded rows; of packed rows, those besides the longest.
    It changes memory and speed, not the result."""
    packing: PackingChoice = "auto"
    """`auto`: tokens that rows share (a session's turns, hints, retries) run through the model once, if that
    saves a sixth of them and the model allows it. The result is the same. `off`: every row runs alone."""
    loss_backend: LossBackend = "fused"
    """How logits become a loss. `fused`: a chunk of rows at a time, gradient included, in the memory of a
    chunk. `plain`: all at once by autograd; the reference, and for models with an unusual head."""
    checkpointing: bool = False
    """Recompute activations in the backward pass: a third more work, a fraction of the memory."""
    device: str = "auto"
    """`auto` is CUDA if there is one, else the CPU."""
    dtype: Precision = "float32"
    """Precision of forward passes and of written versions; use the engine's. With bfloat16 the optimiser
    keeps fp32 master weights."""
    threads: int = 0
    """CPU threads of torch; 0: as many as cores. For a tiny model 1 is best, above all on busy cores."""
    measure_effects: bool = True
    """Whether an update measures what it did to its turns, for `afterwit ledger`: one more forward pass over
    their responses, those with hints first, for a tenth of the update's work or 4,096 tokens."""
    keep_versions: int = 5
    """Newest versions whose weights stay on disk, to roll back to; in addition one at each doubling of the
    distance (the ladder), so that `forget` and `rollback` reach back. Manifests are never deleted."""
    mismatch_alarm: float = 0.2
    """Nats. There is an alarm if the mean |log pi_old - log pi_b| of tokens that the same weights sampled is
    above this: engine and learner disagree."""
    poll_s: float = 1.0
    """Seconds between looks at the store."""
    processes: int = 1
    """Processes that share an update's passes, each with the whole policy on a device of its own: as many as
    there are GPUs, at most one for each turn of a batch. `serve` and `train` start them with `torchrun`'s own
    launcher, unless they were started by `torchrun`, whose number counts then."""
    shards: int = 1
    """Processes that hold one copy of the weights between them (FSDP2), with gradient and optimiser state:
    for full weights that do not fit one device. `processes` is a multiple of it, and each multiple is a copy.
    All need the home on a disk that they share. 1: every process holds all."""
    patience_s: float = 600.0
    """Seconds that the processes of a learner wait for each other within an update. After that one of them
    hangs: all end, and `serve` starts them again. `/readyz` and `status` report a
    learner of one process without a sign for so long as hanging, and leave it alone: a pass may take long."""
    lease_s: float = 900.0
    """Seconds until another learner may take over claimed turns; renewed while the update runs."""
    retry_s: float = 30.0
    """Seconds until a released batch is tried again; doubles with each attempt, up to an hour."""
    max_attempts: int = 6
    """Failed updates after which a turn ends as `learner_failed`; `requeue` puts it back."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(
            self, 1, "batch", "min_batch", "turns_per_session_per_update", "batches_per_update", "epochs"
        )
        at_least(self, 1, "micro_batch_tokens", "max_tokens", "keep_versions", "max_attempts")
        at_least(self, 1, "processes", "shards")
        at_least(self, 0, "replay", "max_staleness", "max_wait_s", "weight_decay")
        below(self, inf, "max_wait_s")
        at_least(self, 0, "mismatch_alarm", "threads", "source_turns_a_day", "lora_rank", "beta1", "beta2")
        above(self, 0, "lr", "lora_alpha", "clip", "poll_s", "lease_s", "retry_s", "patience_s")
        below(self, 1, "beta1", "beta2")
        within(self, 0, 1, "ema_decay", "source_share")
        if self.adapters != "shared":
            self._require_adapters()
        if self.teaches == "both" and self.update_gate:
            raise ValueError(
                "teaches is 'both', whose updates of the shared adapter have replayed turns alone, but"
                " update_gate is on: it wants new ones, so set update_gate = false"
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

    def _require_adapters(self) -> None:
        if not self.lora_rank:
            raise ValueError(
                f"adapters is {self.adapters!r}, but lora_rank is 0: whole weights are shared by all, so set"
                " lora_rank to 16"
            )

    @property
    def adapter_policy(self) -> AdapterPolicy:
        """The rule by which a key or a group of sessions has an adapter."""
        return AdapterPolicy(division=self.adapters, shared_keys=self.shared_keys)

    def _require_shardable(self) -> None:
        if self.processes > 1 and self.processes % self.shards:
            raise ValueError(f"processes is {self.processes}, which is no multiple of shards, {self.shards}")
        if self.lora_rank:
            raise ValueError(
                f"shards is {self.shards}, but an adapter of rank {self.lora_rank} trains: only full weights"
                " are sharded, so set lora_rank = 0 or leave shards out"
            )
        for name, value in {"teacher": self.teacher, "reference": self.reference}.items():
            if value not in ("base", "live", SERVER):
                raise ValueError(f"{name} is {value!r}, but with shards it is 'base' or 'live'")

    @property
    def teaching(self) -> Rule:
        """The rule by which turns train without a person's review."""
        return Rule(review=self.review, tool_hints=self.tool_hints)

    def settled(self, width: int) -> LearnerSettings:
        """With the step size for a model whose hidden states have this width, if none is given."""
        return self if self.lr is not None else replace(self, lr=rate_for(width, adapter=self.lora_rank > 0))

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
        """Whether they differ in nothing but the step size, which each update sets."""
        return replace(self, lr=other.lr) == other

    @property
    def checkpoints(self) -> dict[str, str]:
        """The settings among `teacher` and `reference` that name another checkpoint."""
        named = {"teacher": self.teacher, "reference": self.reference}
        return {name: value for name, value in named.items() if value not in (*NAMED_MODELS, SERVER)}
