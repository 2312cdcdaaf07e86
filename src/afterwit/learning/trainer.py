"""From a batch to a version on disk. After a failure the policy is loaded again.

`explain` computes the advantages of one turn by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from afterwit.checkpoints.versions import Versions
from afterwit.engines.port import TeacherServer
from afterwit.engines.teacher import require_servable
from afterwit.errors import SettingError, UpdateRefused
from afterwit.judging.hinted_prompts import Placement, Rendering, hinted_prompts
from afterwit.learning.batch import Item, Refused, TurnLimits, build_items
from afterwit.learning.distributed import orders
from afterwit.learning.distributed.sharded import Sharded
from afterwit.learning.forgetting import Rerun, Samples, replay_updates
from afterwit.learning.metrics import item_reads, plain_kl, plain_rows
from afterwit.learning.models import use_threads
from afterwit.learning.passes import ALONE, Packing, Phase, PhaseTimes, Progress, Ranks, probe
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.settings import SERVER, LearnerSettings
from afterwit.learning.update import Epoch, score, update, update_state
from afterwit.lifecycle import Reason
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import advantages
from afterwit.promotion.suite import ItemRead, SuiteItem, Suspect
from afterwit.turn import SHARED
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, Probe, Recipe, SuiteResult, Version
from afterwit.weights.weights import read_config, return_freed

if TYPE_CHECKING:
    from afterwit.learning.distributed.group import Group

Examine = Callable[[Policy], SuiteResult | None]
"""The approved turns that an updated policy lost; None: it was not asked."""


class Trainer:
    """Holds the policy at the newest version, and the frozen models that the objective reads.

    Its settings name the step size, whether or not it was given.
    """

    epoch: Epoch | None = None
    """Takes the optimiser's steps in the learner's place; None: the learner itself."""

    def __init__(
        self,
        versions: Versions,
        rendering: Rendering,
        *,
        settings: LearnerSettings,
        objective: ObjectiveSettings,
        placement: Placement = Placement.LAST_USER,
        teacher: TeacherServer | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """`teacher` is the server that scores hints, for `settings.teacher = "server"`. SettingError if it
        cannot do so for the objective. `ranks` are the processes that share this learner's work."""
        if settings.teacher == SERVER:
            require_servable(objective)
        self.versions = versions.of(versions.adapter or SHARED)
        self.settings = settings.settled(read_config(versions.base).get_text_config().hidden_size)
        self.objective, self.rendering, self.placement = objective, rendering, placement
        self.ranks = ranks
        self.frozen = FrozenModels(versions.base, settings, server=teacher)
        self._policy: Policy | None = None
        self.written_bytes = 0
        """About the size of the version that was written last, or could not be."""

    def begin(self, *, now: float) -> None:
        """Share versions with other machines, write version 0 if it is missing, and load the newest.

        Call it while `versions.learning()`. SettingError if one cannot be loaded, or if the server with the
        teacher is not fit; VersionsUnavailable if they cannot be shared.
        """
        if self.objective.needs_teacher and (server := self.frozen.served) is not None:
            with self.ranks.leading(orders.open_teacher):
                server.open()
        use_threads(self.settings.threads)
        self.versions.share()
        policy = self.policy()
        if self.versions.get(0) is not None:
            return
        if policy.number and self.ranks.lockstep:
            raise SettingError("the record of version 0 is gone: start once without learner.shards")
        base = policy if policy.number == 0 else Policy.load(self.versions, 0, self.settings)
        version = Version(number=0, parent=None, origin=Origin.BASE, created=now, probe=self.probe(base))
        with self.versions.writing():
            self.versions.write(version, lambda folder: None)

    def follow(self, group: Group, watch: Progress = lambda phase: None) -> None:
        """Follow rank 0 until it ends, in another process than that. RankLost if it, or a rank that this one
        needs, ends otherwise. `watch` is called with every phase of this rank's part of an update."""
        use_threads(self.settings.threads)
        follower = orders.Follower(
            base=self.versions.base,
            settings=self.settings,
            frozen=self.frozen,
            ranks=group,
            watch=watch,
        )
        orders.follow(follower, group)

    @property
    def adapter(self) -> str:
        return self.versions.adapter or SHARED

    def turn_to(self, adapter: str) -> None:
        self.versions = self.versions.of(adapter)

    def policy(self) -> Policy:
        """The adapter's policy at its newest version, loaded again if the one in memory is another.

        Of another adapter's policy the frozen base stays in memory.
        """
        newest = self.versions.newest()
        if self._policy is None or self._policy.number != newest:
            base = None if self._policy is None else self._policy.base
            self.drop()
            self._policy = self.load(self.versions, newest, self.settings, base)
        return self._policy

    def load(
        self,
        versions: Versions,
        number: int,
        settings: LearnerSettings,
        base: PreTrainedModel | None = None,
    ) -> Policy:
        """The policy at a version, in all ranks; `base` is the frozen base of an earlier one."""
        if self.ranks.size > 1:
            return orders.load(versions, number, settings, self.ranks, base)
        return Policy.load(versions, number, settings, base=base)

    def drop(self) -> None:
        """Forget the policy in memory: the version on disk counts."""
        self._policy = None
        return_freed()

    def build(
        self, samples: Sequence[JudgedTurn], *, version: int | None = None
    ) -> tuple[list[Item], list[Refused]]:
        """The items of the next update, or of one that starts at `version`, and the turns that it refuses."""
        limits = TurnLimits(
            max_tokens=self.context,
            max_staleness=self.settings.max_staleness,
            version=self.versions.newest() if version is None else version,
            chain=self.versions.numbers(),
            adapter=self.adapter,
        )
        return build_items(samples, self.rendering, self.placement, limits, self.objective)

    @property
    def context(self) -> int:
        """Most tokens of prompt and response: the least of the setting and of either model's context."""
        served = self.frozen.served if self.objective.needs_teacher else None
        return self.policy().context(self.settings, served)

    def train(
        self,
        new: Sequence[Item],
        replayed: Sequence[Item],
        *,
        now: float,
        progress: Progress,
        objective: ObjectiveSettings | None = None,
        settings: LearnerSettings | None = None,
        metrics: Mapping[str, float] = MappingProxyType({}),
        examine: Examine = lambda policy: None,
    ) -> Version:
        """One update and its version, whose manifest is on disk on return.

        `objective` and `settings` replace the trainer's own, but not what loads the models; `metrics` join
        the update's own in the manifest. What `examine` raises of the updated policy gives the update up.
        Raises UpdateRefused if the update would not be finite, VersionTaken if a rollback came first. After
        any error the next update starts from the newest version on disk.
        """
        number, policy, times = self.versions.next(), self.policy(), PhaseTimes(progress)
        items, objective, settings = [*new, *replayed], objective or self.objective, settings or self.settings
        batch: dict[str, Any] = {"items": items, "objective": objective, "settings": settings}
        batch |= {"measured": len(new) if self.settings.measure_effects else 0, "epoch": self.epoch}
        try:
            with self.ranks.leading(orders.run_update, **batch):
                found, effects = update(policy, self.frozen, progress=times, ranks=self.ranks, **batch)
            found |= self._side_effect(policy, objective)
            times.done("effects")
            suite = examine(policy)
            times.done("suite")
            version = Version(
                number=number,
                parent=policy.number,
                origin=Origin.UPDATE,
                created=now,
                turns=_turns(new),
                replayed=_turns(replayed),
                probe=self.probe(policy),
                metrics={**found, **times.metrics(), **metrics},
                recipe=self._recipe(items, objective, settings, policy),
                effects=effects,
                suite=suite,
                adapter=self.adapter,
            )
            written = self.write(version, policy, progress)
        except BaseException:
            self.drop()
            raise
        finally:
            return_freed()
        progress(Phase.WRITTEN)
        return written

    def _recipe(
        self, items: Sequence[Item], objective: ObjectiveSettings, settings: LearnerSettings, policy: Policy
    ) -> Recipe | None:
        """The recipe of an update; None if it learned from anything but turns of the store."""
        turns = {item.turn: item for item in items if item.turn is not None}
        if len(turns) != len(items):
            return None
        return Recipe(
            learner=asdict(settings),
            objective=asdict(objective),
            placement=self.placement.value,
            fresh_optimizer=policy.fresh_optimizer,
            digests={turn: item.digest for turn, item in turns.items()},
            groups={turn: item.group for turn, item in turns.items() if item.group},
        )

    def _side_effect(self, policy: Policy, objective: ObjectiveSettings) -> dict[str, float]:
        """How far the update moved answers that no turn teaches; {} unless the base is in memory anyway, and
        no other rank would have to run it."""
        names = {"teacher": objective.needs_teacher, "reference": objective.beta > 0}
        is_read = any(used and getattr(self.settings, name) == "base" for name, used in names.items())
        at_hand = self.settings.measure_effects and (policy.base is not None or is_read)
        if not at_hand or self.ranks.lockstep or not (rows := plain_rows(self.rendering)):
            return {}
        return {"plain_kl": plain_kl(policy.model, self.frozen.base(policy), rows)}

    def write(self, version: Version, policy: Policy, progress: Progress) -> Version:
        """Write the policy as this version, whose manifest is on disk on return.

        Raises UpdateRefused if its probe is not finite, VersionTaken if another version came first.
        """
        if not version.probe.is_finite:
            raise UpdateRefused(f"the weights of version {version.number} give log-probs that are not finite")
        self.written_bytes = policy.size
        with self.versions.writing():
            written = self.versions.write(version, lambda folder: self.fill(folder, policy, progress))
        policy.number, policy.fresh_optimizer = written.number, False
        return written

    def fill(self, folder: Path, policy: Policy, progress: Progress) -> None:
        """Write the policy's files into a version's folder, from all ranks that hold a part of it."""
        if isinstance(policy.trained, Sharded):
            orders.write(policy, policy.trained, folder, self.versions.base, progress, self.ranks)
        else:
            policy.write(folder, self.versions.base, progress)

    def probe(self, policy: Policy) -> Probe:
        with self.ranks.leading(orders.score_probe), self.ranks.in_lockstep():
            return probe(policy.model)

    def packs(self, policy: Policy) -> bool:
        """Whether it reads once what several rows begin with."""
        return Packing.of(self.settings, policy.model).allowed

    def read(self, policy: Policy, items: Sequence[SuiteItem]) -> list[tuple[SuiteItem, ItemRead]]:
        """Each item with what the policy gives its response."""
        if not items:
            return []
        with self.ranks.leading(orders.read_items, items=items, settings=self.settings):
            return list(zip(items, item_reads(policy, items, self.settings, self.ranks), strict=True))

    def contradicted(self, suspects: Sequence[Suspect]) -> frozenset[str]:
        """The approved turns of these that the policy takes, and would not with the hint in its prompt.

        One whose messages no longer render to its prompt is not among them.
        """
        policy, plain, hinted = self.policy(), dict[str, SuiteItem](), list[SuiteItem]()
        for each in suspects:
            room = self.context - len(each.item.ids)
            prompts, _ = hinted_prompts(each.turn, (each.hint,), self.rendering, self.placement, room)
            if prompts:
                plain[each.item.turn] = each.item
                hinted.append(replace(each.item, prompt_ids=prompts[0][1]))
        found = self.read(policy, [*plain.values(), *hinted])
        without = {item.turn: read.logprobs for item, read in found[: len(plain)]}
        return frozenset(
            item.turn
            for item, shown in found[len(plain) :]
            if item.contradicted(without[item.turn], shown.logprobs)
        )

    def rerun(self, start: int, steps: Sequence[Rerun], samples: Samples, *, progress: Progress) -> Policy:
        """The policy at `start` after these updates, which are run again as they were. No version is written.

        Raises NotRepeatable if an update would read something else than it did. The policy in memory is
        forgotten.
        """
        self.drop()
        return replay_updates(self, start, steps, samples, progress)


def _turns(items: Sequence[Item]) -> tuple[str, ...]:
    """The turns that the store knows: what an Atropos server sent is none."""
    return tuple(item.turn for item in items if item.turn is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantage:
    """One term of the loss at one token: what is pushed up or down."""

    ids: tuple[int, ...]
    values: tuple[float, ...]
    """The advantage of each id, before the term's weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The lesson of one turn."""

    weights: int
    """The version whose weights were used."""
    exact: bool
    """Whether an update of this turn started, or would start, from these weights."""
    hints: tuple[str, ...]
    """The hints whose teachers ran."""
    chosen: tuple[int, ...]
    """The hint of each token, as an index of `hints`; (): no OPD term."""
    terms: dict[str, list[Advantage]]
    """Term -> an entry per token. Empty: the turn carries no term."""


def explain(trainer: Trainer, sample: JudgedTurn, trained_in: int | None) -> Explained | Reason:
    """The lesson of the turn in version `trained_in`, or now if that is None; a reason if it cannot train.

    If the weights of that update are gone, the newest version's are used, and `exact` is False.
    """
    trainer.turn_to(sample.turn.adapter)
    versions = trainer.versions
    number, exact = versions.newest(), trained_in is None
    version = None if trained_in is None else versions.get(trained_in)
    if version is not None and version.parent is not None and versions.has_weights(version.parent):
        number, exact = version.parent, True
    policy = Policy.load(versions, number, trainer.settings)
    start = number if exact else sample.turn.sampled.oldest_version  # it trained, so it was not too stale
    items, refused = trainer.build([sample], version=start)
    if refused:
        return refused[0].reason
    objective = trainer.objective
    state = update_state(policy, trainer.frozen, items, objective, trainer.settings)
    score(state)
    scored, target = state.samples[0], state.targets[0]
    terms = {}
    for name in objective.terms_of(scored.carried):
        ids_TJ, values_TJ = advantages(name, target.tokens, objective)
        values_TJ = torch.where(scored.taught_by(name)[:, None], values_TJ, torch.zeros_like(values_TJ))
        tokens = zip(ids_TJ.tolist(), values_TJ.tolist(), strict=True)
        terms[name] = [Advantage(ids=tuple(ids), values=tuple(values)) for ids, values in tokens]
    chosen = () if target.hint_T is None else tuple(target.hint_T.tolist())
    return Explained(weights=policy.number, exact=exact, hints=items[0].hints, chosen=chosen, terms=terms)
