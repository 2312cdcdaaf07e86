"""The demo's tokenizer: byte-level BPE over lower-cased text, spaces apart, boilerplate as single tokens."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from afterwit.judging import prompts as judge_prompts

END_OF_TURN, PAD = "<|im_end|>", "<|endoftext|>"
SPECIAL = (PAD, "<|im_start|>", END_OF_TURN)
JUDGING = (
    "<request>",
    "</request>",
    "<response>",
    "</response>",
    "<next tool>",
    "<next user>",
    "</next>",
    "[HINT_START]",
    "[HINT_END]",
    r"\boxed{1}",
    r"\boxed{-1}",
    r"\boxed{0}",
    "[user's hint / instruction]",
    judge_prompts.SHORT_EVALUATION,
    judge_prompts.SHORT_HINT,
)
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def train(texts: Iterable[str], boilerplate: Sequence[str], words: str, size: int) -> Tokenizer:
    """A tokenizer of `size` entries: the world's boilerplate, the judge's, and pieces learnt from these texts
    of what the pattern `words` takes for a word.
    """
    whole = [*boilerplate, *JUDGING]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rf"{words}|[0-9]+|\s|[^a-zA-Z0-9\s]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(whole),
        special_tokens=[*SPECIAL],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in whole])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json with the chat template."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TURN,
        "pad_token": PAD,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE.read_text(encoding="utf-8").rstrip("\n"),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
