import warnings
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM, PreTrainedModel

from afterwit.learning.models import load_model, recompute_activations
from afterwit.learning.passes import Row, probe, response_logits, stream_logits
from tests.fakes.models import tiny_llama, tiny_starcoder2

CPU = torch.device("cpu")


def rows(count: int = 5) -> list[Row]:
    random = Random(1)
    return [
        Row(
            prompt=tuple(random.randrange(300) for _ in range(random.randrange(1, 20))),
            response=tuple(random.randrange(300) for _ in range(random.randrange(1, 9))),
        )
        for _ in range(count)
    ]


def one_by_one(model: PreTrainedModel, row: Row) -> torch.Tensor:
    """Plain Hugging Face: the whole row alone, every position's logits, then the response's."""
    ids = torch.tensor([[*row.prompt, *row.response]])
    return model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1]


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def model(
    request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedModel:
    folder = base if request.param == "qwen3" else tiny_llama(tmp_path_factory.mktemp("llama"))
    return load_model(folder, dtype=torch.float64, device=CPU)


def test_a_padded_pass_gives_each_row_the_logits_that_it_has_alone(model: PreTrainedModel) -> None:
    for row, logits_TV in zip(rows(), response_logits(model, rows()), strict=True):
        torch.testing.assert_close(logits_TV, one_by_one(model, row), rtol=0, atol=1e-12)


@pytest.mark.parametrize("limit", [1, 40, 10_000])
def test_a_stream_gives_rows_in_their_order_however_it_is_cut(model: PreTrainedModel, limit: int) -> None:
    streamed = list(stream_logits(model, rows(), limit))
    assert not any(logits_TV.requires_grad for logits_TV in streamed)
    for row, logits_TV in zip(rows(), streamed, strict=True):
        torch.testing.assert_close(logits_TV, one_by_one(model, row), rtol=0, atol=1e-12)


def test_scoring_leaves_no_trace_in_the_model(model: PreTrainedModel) -> None:
    ids = torch.tensor([[1, 2, 3]])
    before = model(input_ids=ids).logits
    response_logits(model, rows())
    assert torch.equal(model(input_ids=ids).logits, before)


def test_the_probe_is_what_plain_transformers_gives(base: Path) -> None:
    found = probe(load_model(base, dtype=torch.float32, device=CPU))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([found.ids])).logits[0, :-1], dim=-1)
    expected = logprobs.gather(-1, torch.tensor(found.ids[1:])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(found.logprobs), expected, rtol=0, atol=1e-5)


def test_recomputing_activations_changes_neither_logits_nor_gradients(base: Path) -> None:
    plain = load_model(base, dtype=torch.float64, device=CPU)
    frugal = load_model(base, dtype=torch.float64, device=CPU)
    recompute_activations(frugal)
    for model in (plain, frugal):
        torch.cat(response_logits(model, rows())).square().sum().backward()
    for one, other in zip(plain.parameters(), frugal.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_passes_of_more_tokens_alone_recompute_and_only_for_a_gradient(base: Path) -> None:
    model, runs = load_model(base, dtype=torch.float32, device=CPU), list[bool]()
    with warnings.catch_warnings(action="error"):  # they would show in every user's terminal
        for _ in range(2):  # as for two adapters over one base
            recompute_activations(model, above=10)
    model.get_decoder().layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(True))
    for tokens, graph, expected in ((10, True, 1), (11, True, 2), (11, False, 1)):
        row = Row(prompt=(1,) * 5, response=(2,) * (tokens - 4))  # the last id is not an input
        runs.clear()
        with torch.set_grad_enabled(graph):
            (logits_TV,) = response_logits(model, [row])
        if graph:
            logits_TV.sum().backward()
        assert len(runs) == expected


def test_training_mode_has_no_dropout_of_any_name(tmp_path: Path) -> None:
    drops = {f"{name}_dropout": 0.5 for name in ("attention", "residual", "embedding")}
    model = load_model(tiny_starcoder2(tmp_path, **drops), dtype=torch.float64, device=CPU).train()
    first, second = (torch.cat(response_logits(model, rows())) for _ in range(2))
    assert torch.equal(first, second)


def test_a_long_pass_draws_none_of_the_noise_of_training(tmp_path: Path) -> None:
    """A pass that recomputes has the values of one that does not, also of experts that train with noise."""
    noisy = MixtralConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=2, router_jitter_noise=0.5,
    )  # fmt: skip
    model = MixtralForCausalLM(noisy).eval()
    row = [Row(prompt=(1, 2, 3), response=(4, 5))]
    (plain,) = response_logits(model, row)
    recompute_activations(model)
    (recomputed,) = response_logits(model, row)
    assert torch.equal(plain, recomputed)
