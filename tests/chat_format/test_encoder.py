"""Ids of a text whose pieces are kept, against the text tokenised whole, for several kinds of tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from afterwit.chat_format.encode import SHORTEST, Encoder, cut_tokens, joins
from afterwit.chat_format.render import Renderer
from afterwit.turn import Conversation, Message
from tests.fakes.models import CORPUS
from tests.fakes.templates import QWEN3_TEMPLATE

TURN, END, START = "<|im_start|>", "<|im_end|>", "<s>"
MARKER = "<think>"
TEXTS = (QWEN3_TEMPLATE, START)


def byte_level() -> Tokenizer:
    """As Qwen's: bytes, split by a pattern, after a normalizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(use_regex=False)])
    return tokenizer


def prefixing() -> Tokenizer:
    """As GPT-2's with a space before each stretch."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def metaspace(scheme: str) -> Tokenizer:
    """As sentencepiece's Unigram."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return tokenizer


def legacy() -> Tokenizer:
    """As the first Llama's: the normalizer writes spaces, and nothing splits the text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    return tokenizer


def lowering() -> Tokenizer:
    """As BERT's: most of the text's form is lost."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.BertNormalizer(lowercase=True)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


KINDS = {
    "byte-level": byte_level,
    "prefixing": prefixing,
    "metaspace first": lambda: metaspace("first"),
    "metaspace always": lambda: metaspace("always"),
    "legacy": legacy,
    "lowering": lowering,
}
TRAINERS = {
    "BPE": trainers.BpeTrainer,
    "Unigram": trainers.UnigramTrainer,
    "WordPiece": trainers.WordPieceTrainer,
}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    """Trained, with tokens for turns, one that takes the white space after it, and one in normalised text."""
    tokenizer = KINDS[kind]()
    more: dict[str, Any] = {"vocab_size": 300, "show_progress": False, "special_tokens": ["<unk>"]}
    if kind == "byte-level" or kind == "prefixing":
        more["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    if isinstance(tokenizer.model, models.Unigram):
        more["unk_token"] = "<unk>"
    trainer = TRAINERS[type(tokenizer.model).__name__](**more)
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.add_special_tokens([TURN, START, AddedToken(END, rstrip=True, normalized=False)])
    tokenizer.add_tokens([MARKER])
    return tokenizer


def whole(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


parts = st.one_of(
    st.sampled_from([TURN, END, START, MARKER, "<|im_", "|>", " ", "\n\n", "\u00a0", "\u2581", "e\u0301"]),
    st.text(max_size=12),
    st.sampled_from(CORPUS).map(lambda words: words * 4),
)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.lists(parts, max_size=12).map("".join), min_size=1, max_size=4))
def test_ids_of_texts_that_share_beginnings_are_those_of_the_whole(kind: str, texts: list[str]) -> None:
    tokenizer = tokenizer_of(kind)
    encoder = encoder_of(kind)
    assert encoder.cuts
    text = ""
    for more in texts:
        text += more
        assert encoder.encode(text) == whole(tokenizer, text)


@cache
def encoder_of(kind: str) -> Encoder:
    """One for all examples: its cache holds texts of every example, and some are dropped."""
    return Encoder(tokenizer_of(kind), TEXTS, most_bytes=20_000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_between_tokens_is_kept_and_joined_in_each_kind(kind: str) -> None:
    """Text after a cut may not be read as if it began the prompt, nor lose or gain a space at its borders."""
    tokenizer, encoder = tokenizer_of(kind), encoder_of(kind)
    message = " The quick brown fox " * 20
    for text in (message, TURN + message + END, START + message + TURN + message + END + message):
        assert len(text) > SHORTEST
        assert encoder.encode(text) == encoder.encode(text) == whole(tokenizer, text)


messages = st.lists(
    st.builds(
        lambda role, words, times: Message(role=role, content=words * times),
        st.sampled_from(["user", "assistant", "tool", "system"]),
        st.sampled_from(CORPUS) | st.text(max_size=30),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("kind", ["byte-level", "metaspace first"])
@given(messages=messages)
def test_a_conversation_that_grows_renders_to_the_ids_of_its_whole_text(
    kind: str, messages: Sequence[Message]
) -> None:
    renderer = renderer_of(kind)
    for end in range(1, len(messages) + 1):
        conversation = Conversation(messages=tuple(messages[:end]))
        assert renderer.prompt_ids(conversation) == whole(tokenizer_of(kind), renderer.text(conversation))


@cache
def renderer_of(kind: str) -> Renderer:
    return Renderer(
        tokenizer_of(kind), {"default": QWEN3_TEMPLATE}, special_tokens={}, end_ids=frozenset({1})
    )


class Watched:
    """A tokenizer that notes what it tokenises."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.read: list[str] = []

    def encode_batch_fast(self, texts: list[str], **more: Any) -> Any:
        self.read += texts
        return self._tokenizer.encode_batch_fast(texts, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def said(role: str, random: Random) -> str:
    return f"{TURN}{role}\n{' '.join(random.choices(CORPUS, k=8))}{END}\n"


def test_only_what_is_new_is_tokenised() -> None:
    """In the next step, in another branch of the conversation, and after an edit in its middle."""
    watched, random = Watched(tokenizer_of("byte-level")), Random(0)
    encoder = Encoder(watched, TEXTS)  # type: ignore[arg-type] # it delegates
    history = [said(role, random) for role in ("system", *("user", "assistant") * 10)]
    encoder.encode("".join(history))
    added, edited = said("user", random), said("user", random)
    for text in ("".join([*history, added]), "".join([*history[:9], edited, *history[10:]])):
        watched.read = []
        assert encoder.encode(text) == whole(tokenizer_of("byte-level"), text)
        new = added if added in text else edited
        assert sum(map(len, watched.read)) <= len(new) + 2 * SHORTEST
    watched.read = []
    encoder.encode("".join(history[:7]))
    assert sum(map(len, watched.read)) <= 2 * SHORTEST


def test_what_is_kept_is_bounded_and_the_longest_unused_goes_first() -> None:
    watched, random = Watched(tokenizer_of("byte-level")), Random(0)
    encoder = Encoder(watched, TEXTS, most_bytes=30_000)  # type: ignore[arg-type] # it delegates
    system = said("system", random) + TURN
    for _ in range(60):
        encoder.encode(system + said("user", random))
        assert encoder._packed.bytes <= 30_000
    watched.read = []
    encoder.encode(system + said("user", random))
    assert not any(text.startswith(f"{TURN}system") for text in watched.read)


def test_a_text_larger_than_all_that_may_be_kept_is_tokenised_and_dropped() -> None:
    encoder = Encoder(tokenizer_of("byte-level"), TEXTS, most_bytes=5_000)
    text = "word " * 2_000 + TURN
    assert encoder.encode(text) == whole(tokenizer_of("byte-level"), text)
    assert encoder._packed.bytes < 1_000


def test_a_text_of_tokens_alone_is_cut_into_no_more_pieces_than_its_length_allows() -> None:
    watched = Watched(tokenizer_of("byte-level"))
    encoder = Encoder(watched, TEXTS)  # type: ignore[arg-type] # it delegates
    watched.read = []
    text = "".join(f"{END}{number}" for number in range(5_000))
    assert encoder.encode(text) == whole(tokenizer_of("byte-level"), text)
    assert len(watched.read) <= len(text) / SHORTEST + 1


def plain() -> Tokenizer:
    return Tokenizer.from_str(tokenizer_of("byte-level").to_str())


UNSAFE = {
    "takes the space before it": (AddedToken("<mask>", lstrip=True, normalized=False), "<mask>"),
    "stands between spaces only": (AddedToken("<mask>", single_word=True, normalized=False), "<mask>"),
    "another reaches over its start": (AddedToken(f"well{TURN}", normalized=False), TURN),
}


@pytest.mark.parametrize("why", UNSAFE)
def test_the_random_texts_find_a_token_that_no_text_may_be_cut_before(why: str) -> None:
    added, token = UNSAFE[why]
    tokenizer = plain()
    assert joins(tokenizer, (TURN, END))
    tokenizer.add_special_tokens([added])
    assert not joins(tokenizer, (token,))
    assert token not in cut_tokens(tokenizer, (*TEXTS, token))


def test_a_token_of_normalised_text_is_no_cut() -> None:
    assert MARKER not in cut_tokens(tokenizer_of("byte-level"), TEXTS)
    assert set(cut_tokens(tokenizer_of("byte-level"), TEXTS)) == {TURN, END, START}


class Looking(Watched):
    """A tokenizer whose ids depend on what comes before in the same text, token or not."""

    def encode_batch_fast(self, texts: list[str], **more: Any) -> Any:
        return super().encode_batch_fast([text + " " * (len(text) % 3) + "x" for text in texts], **more)


def test_a_tokenizer_that_does_not_pass_the_check_reads_every_text_whole() -> None:
    tokenizer = Looking(plain())
    encoder = Encoder(tokenizer, TEXTS)  # type: ignore[arg-type] # it delegates
    assert not encoder.cuts
    tokenizer.read = []
    text = said("user", Random(0)) * 3
    assert encoder.encode(text) == encoder.encode(text)
    assert len(tokenizer.read) == 2
    assert encoder._packed.bytes == 0


def test_tokenizers_of_one_hash_are_checked_once() -> None:
    first, again, other = (Watched(plain()) for _ in range(3))
    for tokenizer, name in ((first, "one"), (again, "one"), (other, "another")):
        assert Encoder(tokenizer, TEXTS, tokenizer_hash=name).cuts  # type: ignore[arg-type] # it delegates
    assert first.read
    assert not again.read
    assert other.read == first.read
