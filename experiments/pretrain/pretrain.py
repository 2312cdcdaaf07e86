"""Train a world's base model from nothing: `python -m experiments.pretrain.pretrain --world tools --out DIR`.

One thread, small steps of about 640 tokens, Muon on the hidden matrices and AdamW on the rest, a learning
rate that falls to nothing over the last part. It begins with exercises. With `--start` it goes on from
another model of the world, at half the rate. Only the assistant's messages are full targets, except for its
mistakes, which weigh nothing; tool results weigh 0.3, everything else 0.02.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

import jinja2
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from experiments.pretrain import chat_corpus as chat
from experiments.pretrain import tokenizer
from experiments.pretrain import tools_corpus as tools
from experiments.pretrain.example import Example
from experiments.pretrain.muon import Muon

CONTEXT, STEP_TOKENS, POOL = 1024, 640, 1500
PROMPT_WEIGHT, RESULT_WEIGHT = 0.02, 0.3
LATER_RATE = 0.5
"""Of a model that goes on, as a share of the rate at first."""
START, END = "<|im_start|>assistant\n", "<|im_end|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """One world's training data, by seed: samples without end, the exercises before them, and the samples of
    a model that goes on. And the tokenizer's texts kept whole, its pattern of a word, and its size.
    """

    samples: Callable[[int], Iterator[Example]]
    exercises: Callable[[int], Iterator[Example]]
    later: Callable[[int], Iterator[Example]]
    boilerplate: tuple[str, ...]
    words: str
    vocabulary: int


CORPORA: Mapping[str, Corpus] = {
    "tools": Corpus(
        samples=tools.samples,
        exercises=tools.exercises,
        later=tools.later,
        boilerplate=tools.BOILERPLATE,
        words=r"[-.]?[a-zA-Z]+",
        vocabulary=1408,
    ),
    # A space belongs to its word: half as many tokens, and no names glued to other signs.
    "chat": Corpus(
        samples=chat.samples,
        exercises=chat.exercises,
        later=chat.samples,
        boilerplate=chat.BOILERPLATE,
        words=" ?[a-zA-Z]+",
        vocabulary=1792,
    ),
}


def config(vocabulary: int, eos: int, pad: int) -> Qwen3Config:
    """The model's shape."""
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        attention_bias=False,
        eos_token_id=eos,
        pad_token_id=pad,
        bos_token_id=None,
    )


def main() -> None:
    """Parse the flags, train, write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", choices=sorted(CORPORA), default="tools")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=float, default=3.5e6, help="tokens to train on")
    parser.add_argument("--start", type=Path, help="a model folder to go on from, at half the rate")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    corpus, tokens = CORPORA[args.world], int(args.tokens)
    if args.start is None:
        train(corpus, args.out, args.seed, tokens)
    else:
        go_on(corpus, args.start, args.out, args.seed, tokens)


def train(corpus: Corpus, out: Path, seed: int, tokens: int) -> None:
    """Write a model folder trained on about `tokens` tokens."""
    source = corpus.samples(seed)
    render = _renderer()
    texts = [render(sample) for sample in islice(source, 6000)]
    words = tokenizer.train(texts, corpus.boilerplate, corpus.words, corpus.vocabulary)
    tokenizer.save(words, out, CONTEXT)
    end, pad = (words.token_to_id(token) for token in (tokenizer.END_OF_TURN, tokenizer.PAD))
    assert end is not None
    assert pad is not None
    shape = config(words.get_vocab_size(), end, pad)
    model = Qwen3ForCausalLM(shape)
    lessons = chain(corpus.exercises(seed), source)
    _fit(model, _batches(lessons, render, words, Random(seed)), tokens, 1.0)
    model.to(torch.bfloat16).save_pretrained(out)
    _generation_config(out, shape)


def go_on(corpus: Corpus, start: Path, out: Path, seed: int, tokens: int, pool: int = POOL) -> None:
    """Write a model folder: that of `start`, trained on about `tokens` tokens of the later samples."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(start / name, out)
    words = Tokenizer.from_file(str(start / "tokenizer.json"))
    model = Qwen3ForCausalLM.from_pretrained(start, dtype=torch.float32)
    _fit(model, _batches(corpus.later(seed), _renderer(), words, Random(seed), pool), tokens, LATER_RATE)
    model.to(torch.bfloat16).save_pretrained(out)
    _generation_config(out, model.config)


def _fit(model: Qwen3ForCausalLM, batches: Iterator[tuple[Tensor, Tensor]], tokens: int, rate: float) -> None:
    """Train on about `tokens` tokens; `rate` is a factor of both learning rates."""
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimisers = (
        Muon(hidden, lr=0.01),
        torch.optim.AdamW(rest, lr=4e-3, betas=(0.9, 0.98), weight_decay=0.0),
    )
    base = [rate * group["lr"] for optimiser in optimisers for group in optimiser.param_groups]
    seen, began, recent = 0, time.monotonic(), 0.0
    for step, (ids_BT, weight_BT) in enumerate(batches):
        factor = min(1.0, (step + 1) / 100, 1.6 * max(0.0, 1 - seen / tokens))
        for lr, optimiser in zip(base, optimisers, strict=True):
            optimiser.param_groups[0]["lr"] = lr * factor
        loss = _loss(model, ids_BT, weight_BT)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        seen += ids_BT.numel()
        recent = loss.item() if step == 0 else 0.99 * recent + 0.01 * loss.item()
        if step % 250 == 0:
            print(
                f"{seen / 1e6:.2f} M tokens  loss {recent:.4f}  {time.monotonic() - began:.0f} s", flush=True
            )
        if seen >= tokens:
            return


def _loss(model: Qwen3ForCausalLM, ids_BT: Tensor, weight_BT: Tensor) -> Tensor:
    logits_BTV = model(input_ids=ids_BT, use_cache=False).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(
        logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten(), reduction="none"
    )
    weights = weight_BT[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def _batches(
    source: Iterator[Example], render: Any, words: Tokenizer, rng: Random, size: int = POOL
) -> Iterator[tuple[Tensor, Tensor]]:
    """Padded batches of samples of like length: ids, and each token's weight as a target (0 for padding)."""
    pad = words.token_to_id(tokenizer.PAD)
    while True:
        pool = sorted(
            (_targets(render(sample), words, sample.mistakes) for sample in islice(source, size)),
            key=lambda one: len(one[0]),
        )
        groups: list[list[tuple[list[int], list[float]]]] = []
        group: list[tuple[list[int], list[float]]] = []
        for one in pool:
            if group and len(one[0]) * (len(group) + 1) > STEP_TOKENS:
                groups.append(group)
                group = []
            group.append(one)
        rng.shuffle(groups)
        for group in groups:
            width = max(len(ids) for ids, _ in group)
            yield (
                torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in group]),
                torch.tensor([weights + [0.0] * (width - len(weights)) for _, weights in group]),
            )


def _targets(text: str, words: Tokenizer, mistakes: Set[int]) -> tuple[list[int], list[float]]:
    """A conversation's ids and weights: 1 from an assistant's first token to its end-of-turn token, 0 if that
    message is a mistake."""
    ids, weights = [], []
    for index, piece in enumerate(text.split(START)):
        said, end, after = piece.partition(END) if index else ("", "", piece)
        told = RESULT_WEIGHT if "<tool_response>" in after else PROMPT_WEIGHT
        for chunk, weight in ((said + end, 0.0 if index - 1 in mistakes else 1.0), (after + START, told)):
            new = words.encode(chunk, add_special_tokens=False).ids if chunk else []
            ids += new
            weights += [weight] * len(new)
    closing = len(words.encode(START, add_special_tokens=False).ids)
    return ids[:-closing], weights[:-closing]


def _renderer() -> Any:
    template = jinja2.Environment().from_string(tokenizer.TEMPLATE.read_text(encoding="utf-8"))
    return lambda sample: template.render(messages=sample.messages, tools=list(sample.tools))


def _generation_config(out: Path, shape: Qwen3Config) -> None:
    settings = {
        "do_sample": True,
        "temperature": 0.6,
        "eos_token_id": shape.eos_token_id,
        "pad_token_id": shape.pad_token_id,
    }
    (out / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
