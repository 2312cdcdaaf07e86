"""Text as it arrives: whole characters only, the same in any pieces, cut at the first stop string."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterwit.chat_format.encode import Detokenizer, StopStrings, bytes_of
from afterwit.chat_format.render import Renderer
from tests.fakes.models import tiny_qwen3
from tests.timing import check_linear


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(tiny_qwen3(tmp_path_factory.mktemp("model")))


def split(items, cuts):
    """`items` in pieces, cut at the positions `cuts` (taken modulo its length)."""
    places = sorted({cut % (len(items) + 1) for cut in cuts} | {0, len(items)})
    return [items[a:b] for a, b in pairwise(places)]


cuts = st.lists(st.integers(min_value=0, max_value=1000), max_size=8)
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@shared
@given(text=st.text(max_size=60), cuts=cuts)
def test_pieces_of_ids_become_the_whole_text(renderer, text, cuts):
    detokenizer = Detokenizer.of(renderer)
    pieces = [detokenizer.push(ids) for ids in split(renderer.encode(text), cuts)]
    assert "".join([*pieces, detokenizer.finish()]) == text


@shared
@given(text=st.text(st.characters(min_codepoint=0x80, exclude_categories=("Cs",)), min_size=1, max_size=30))
def test_no_piece_holds_half_a_character(renderer, text):
    detokenizer = Detokenizer.of(renderer)
    pieces = [detokenizer.push([index]) for index in renderer.encode(text.replace("\ufffd", "x"))]
    assert not any("\ufffd" in piece for piece in pieces)


@shared
@given(text=st.text(max_size=60))
def test_the_bytes_of_each_id_add_up_to_those_of_the_text(renderer, text):
    assert b"".join(map(renderer.spelled, renderer.encode(text))) == text.encode()


def test_a_byte_of_a_vocabulary_over_pieces_is_that_byte_and_a_piece_is_none():
    assert (bytes_of("<0xF0>"), bytes_of("\u0120\u00e9"), bytes_of("\u2581a")) == (b"\xf0", b" \xe9", None)


@shared
@given(data=st.data(), cuts=cuts)
def test_any_ids_at_all_become_the_text_of_all_of_them(renderer, data, cuts):
    plain = st.integers(min_value=0, max_value=renderer.vocabulary - 1).filter(
        lambda index: index not in renderer.special_ids
    )
    ids = data.draw(st.lists(plain, max_size=30))
    detokenizer = Detokenizer.of(renderer)
    pieces = [detokenizer.push(part) for part in split(ids, cuts)]
    assert "".join([*pieces, detokenizer.finish()]) == renderer.decode(ids)


@shared
@given(data=st.data(), cuts=cuts)
def test_pieces_of_a_decoder_that_joins_bytes_are_those_of_any_decoder(renderer, data, cuts):
    assert renderer.joins_bytes
    ids = data.draw(st.lists(st.integers(min_value=0, max_value=renderer.vocabulary - 1), max_size=30))
    direct = Detokenizer.of(renderer)
    in_context = Detokenizer(renderer.decode, silent=renderer.silent_ids)
    for part in split(ids, cuts):
        assert direct.push(part) == in_context.push(part)
    assert direct.finish() == in_context.finish()


def test_a_character_cut_by_the_end_is_shown_as_broken(renderer):
    detokenizer = Detokenizer.of(renderer)
    assert detokenizer.push(renderer.encode("🙂")[:-1]) == ""
    assert set(detokenizer.finish()) == {"\ufffd"}


def test_control_tokens_have_no_text_and_markers_have(renderer):
    detokenizer = Detokenizer.of(renderer)
    ids = renderer.encode("<think>a</think><tool_call>b</tool_call><|im_start|>c<|im_end|>")
    assert detokenizer.push(ids) + detokenizer.finish() == "<think>a</think><tool_call>b</tool_call>c"


def test_a_stop_string_ends_the_text_and_is_not_part_of_it():
    stops = StopStrings(["\nObservation:", "END"])
    assert [stops.push(text) for text in ("It is", " sunny.\nObs", "erv", "ation: rain", "more")] == [
        "It is",
        " sunny.",
        "",
        "",
        "",
    ]
    assert stops.matched == "\nObservation:"
    assert stops.finish() == ""


def test_what_only_began_like_a_stop_string_is_shown():
    stops = StopStrings(["END"])
    assert stops.push("the E") == "the "
    assert stops.push("N") == ""
    assert stops.push("v") == "ENv"
    assert stops.push(" EN") == " "
    assert stops.finish() == "EN"
    assert stops.matched is None


letters = st.text("abc", max_size=20)


@given(text=letters, stops=st.lists(st.text("abc", max_size=4), max_size=3), cuts=cuts)
def test_where_the_text_is_cut_does_not_depend_on_its_pieces(text, stops, cuts):
    def run(pieces):
        stopper = StopStrings(stops)
        return "".join([stopper.push(piece) for piece in pieces] + [stopper.finish()]), stopper.matched

    whole = run([text])
    assert run(split(text, cuts)) == whole == run(list(text))
    shown, matched = whole
    real = [stop for stop in stops if stop]
    if matched is None:
        assert shown == text
        assert not any(stop in text for stop in real)
    else:
        assert text.startswith(shown + matched)
        assert not any(stop in shown for stop in real)


@pytest.mark.parametrize("stop", ["a" * 30_000 + "b", "aab", "b", "ab" * 5_000 + "c"])
def test_stop_strings_of_any_length_are_looked_for_in_linear_time(stop: str) -> None:
    def read(text: str) -> None:
        stops = StopStrings([stop, "x" + stop])
        for at in range(0, len(text), 4):
            stops.push(text[at : at + 4])

    check_linear(read, lambda size: "a" * size, 5_000)
    check_linear(read, lambda size: "ab" * (size // 2), 5_000)


def test_a_response_of_broken_characters_is_read_in_linear_time(renderer: Renderer) -> None:
    broken = renderer.encode("🙂")[:1]

    def read(count: int) -> None:
        detokenizer = Detokenizer.of(renderer)
        for _ in range(count):
            detokenizer.push(broken)

    check_linear(read, lambda count: count, 500)


def test_broken_characters_are_handed_on_once_nothing_can_mend_them(renderer: Renderer) -> None:
    detokenizer = Detokenizer.of(renderer)
    ids = (*renderer.encode("🙂")[:1] * 20, *renderer.encode("🙂 a"))
    pieces = [detokenizer.push((index,)) for index in ids]
    assert any(pieces[:20])
    assert "".join(pieces) + detokenizer.finish() == "\ufffd" * 20 + "🙂 a"
