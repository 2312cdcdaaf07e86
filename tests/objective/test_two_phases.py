"""`prepare` and `share`, as the learner calls them."""

from dataclasses import fields

import pytest
import torch

from afterwit.objective.sample import Sample, denominators, prepare, sample_loss
from afterwit.objective.settings import OBJECTIVES, ObjectiveSettings
from afterwit.turn import Basis

WIDTH, VOCABULARY = 5, 11
SETTINGS = ObjectiveSettings(entropy_coef=0.1, beta=0.1, tail_bucket=True)


def a_sample(**facts):
    usual = {
        "ids_T": torch.tensor([1, 4, 2]),
        "mask_T": torch.tensor([True, True, False]),
        "behaviour_T": torch.tensor([-1.0, -2.0, -0.5]),
        "tau": 0.6,
        "advantage": 1.0,
        "hints": 2,
    }
    return Sample(**(usual | facts))


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Policy:
    """A linear head over fixed states, enough to accumulate a gradient in."""

    def __init__(self):
        self.head = draw(WIDTH, VOCABULARY).requires_grad_()

    def logits(self, seed):
        return draw(3, WIDTH, seed=seed) @ self.head


def accumulated(batch, parts, *, settings=SETTINGS):
    """The loss and the head's gradient of a batch stepped through in `parts`."""
    policy = Policy()
    over = denominators(batch, settings)
    losses = []
    for part in parts:
        shares = []
        for n in part:
            logits = policy.logits(n)
            teachers = (draw(3, VOCABULARY, seed=100 + 10 * n + hint) for hint in range(batch[n].hints))
            target = prepare(batch[n], logits, teachers, settings)
            base = draw(3, VOCABULARY, seed=200 + n)
            shares.append(sample_loss(logits, batch[n], target, over, settings, logits_reference_TV=base))
        loss = torch.stack([each.loss for each in shares]).sum()
        loss.backward()
        losses.append(loss.item())
    return sum(losses), policy.head.grad


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("aggregation", ["component", "batch"])
@pytest.mark.parametrize("parts", [[[0], [1], [2], [3]], [[3, 1], [2], [0]], [[0, 1, 2], [3]]])
def test_micro_batches_give_what_the_whole_batch_gives(parts, aggregation, objective):
    settings = ObjectiveSettings(objective=objective, aggregation=aggregation, k=4, beta=0.1)
    batch = [a_sample(), a_sample(hints=0), a_sample(advantage=None), a_sample(hints=1, tau=1.0)]
    whole_loss, whole = accumulated(batch, [[0, 1, 2, 3]], settings=settings)
    split_loss, split = accumulated(batch, parts, settings=settings)
    assert split_loss == pytest.approx(whole_loss, rel=1e-13)
    torch.testing.assert_close(split, whole, rtol=1e-13, atol=1e-13)


def test_a_target_carries_neither_a_gradient_nor_the_vocabulary():
    logits = draw(3, VOCABULARY).requires_grad_()
    target = prepare(a_sample(), logits, draw(2, 3, VOCABULARY), SETTINGS)
    held = [target.tokens.old_N, target.tokens.correction_N, target.mismatch_T]
    held += [getattr(target.tokens.kept, field.name) for field in fields(target.tokens.kept)]
    held += [target.hint_T, target.tokens.gap_N]
    assert not any(tensor.requires_grad for tensor in held)
    assert max(tensor.shape[-1] for tensor in held) <= SETTINGS.ids_kept + 1


def test_teachers_are_read_one_at_a_time_and_only_when_they_teach():
    def teachers():
        raise AssertionError("read")
        yield

    logits = draw(3, VOCABULARY)
    assert prepare(a_sample(), logits, teachers(), ObjectiveSettings(objective="rl")).hint_T is None
    assert prepare(a_sample(hints=0), logits, teachers(), SETTINGS).hint_T is None


def test_the_chosen_hint_and_its_gap_are_there_to_be_shown():
    logits = draw(3, VOCABULARY)
    stranger, friend = -3 * logits, logits + 0.01 * draw(3, VOCABULARY, seed=1)
    target = prepare(a_sample(), logits, [stranger, friend], SETTINGS)
    assert target.hint_T.tolist() == [1, 1, 1]
    assert target.tokens.gap_N.abs().max() < 0.1


def test_the_mismatch_is_taken_on_the_basis_of_the_engines_values():
    logits = draw(3, VOCABULARY)
    for basis, tau in ((Basis.PROCESSED, 0.6), (Basis.RAW, 1.0)):
        reported = torch.log_softmax(logits / tau, -1)[range(3), [1, 4, 2]]
        target = prepare(
            a_sample(basis=basis, behaviour_T=reported), logits, draw(2, 3, VOCABULARY), SETTINGS
        )
        torch.testing.assert_close(target.mismatch_T, torch.zeros(3, dtype=torch.float64))
    assert prepare(a_sample(behaviour_T=None, hints=0), logits, [], SETTINGS).mismatch_T is None


@pytest.mark.parametrize(
    ("dtype", "computed"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)]
)
def test_half_precision_is_raised_and_double_kept(dtype, computed):
    logits = draw(3, VOCABULARY).to(dtype)
    sample = a_sample(behaviour_T=None)
    target = prepare(sample, logits, draw(2, 3, VOCABULARY).to(dtype), SETTINGS)
    got = sample_loss(
        logits, sample, target, denominators([sample], SETTINGS), SETTINGS, logits_reference_TV=logits
    )
    assert got.loss.dtype == computed


def test_a_sample_that_carries_nothing_can_still_be_stepped_through():
    settings = ObjectiveSettings(beta=0)
    sample = a_sample(advantage=None, hints=0)
    logits = draw(3, VOCABULARY).requires_grad_()
    part = sample_loss(
        logits, sample, prepare(sample, logits, [], settings), denominators([sample], settings), settings
    )
    part.loss.backward()
    assert not logits.grad.any()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"mask_T": torch.tensor([True])}, "3 ids but a mask of 1"),
        ({"behaviour_T": torch.zeros(2)}, "3 ids but 2 log-probs"),
        ({"mask_T": torch.zeros(3, dtype=torch.bool)}, "none of the 3 tokens trains"),
        ({"ids_T": torch.zeros(3)}, "float32"),
        ({"tau": 0.0}, "tau is 0.0"),
        ({"basis": "Raw"}, "basis is 'Raw'"),
    ],
)
def test_misaligned_samples_cannot_be_built(facts, said):
    with pytest.raises(ValueError, match=said):
        a_sample(**facts)


def test_misaligned_logits_are_refused():
    sample, logits, teachers = a_sample(), draw(3, VOCABULARY), draw(2, 3, VOCABULARY)
    over = denominators([sample], SETTINGS)
    with pytest.raises(ValueError, match="3 ids but 2 rows"):
        prepare(sample, logits[:2], teachers, SETTINGS)
    with pytest.raises(ValueError, match="2 hints but 1 teachers"):
        prepare(sample, logits, teachers[:1], SETTINGS)
    with pytest.raises(ValueError, match=r"logits \[3, 11\] but teacher \[2, 11\]"):
        prepare(sample, logits, teachers[:, :2], SETTINGS)
    target = prepare(sample, logits, teachers, SETTINGS)
    with pytest.raises(ValueError, match="3 ids but 2 rows"):
        sample_loss(logits[:2], sample, target, over, SETTINGS, logits_reference_TV=logits)
    with pytest.raises(ValueError, match=r"logits \[3, 11\] but reference \[1, 11\]"):
        sample_loss(logits, sample, target, over, SETTINGS, logits_reference_TV=logits[:1])
    with pytest.raises(ValueError, match=r"beta is 0.1, but the reference's logits are missing"):
        sample_loss(logits, sample, target, over, SETTINGS)
    none = denominators([a_sample(advantage=None)], SETTINGS)
    with pytest.raises(ValueError, match="carries rl, but its denominator is 0"):
        sample_loss(logits, sample, target, none, SETTINGS, logits_reference_TV=logits)
