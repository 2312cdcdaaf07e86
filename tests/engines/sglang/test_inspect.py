"""A feature that a server lacks is named with its flag before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.engines.server.client import ServerClient, answered
from afterwit.engines.server.inspect import Fit
from afterwit.engines.server.settings import Swap
from afterwit.engines.sglang.server import SglangServer, Traits, inspect
from afterwit.errors import SettingError
from afterwit.turn import Basis
from tests.engines.sglang.recorded import MODULES, Recorded, listening

ALL_MODULES = "--lora-target-modules " + " ".join(sorted(MODULES))


async def found(server: Recorded, model: Path, swap: Swap | None = "adapters") -> Fit:
    async with listening(server) as url:
        client = ServerClient(url, key=None, silence_s=10)
        try:
            return await inspect(client, model, swap)
        finally:
            await client.close()


def traits(fit: Fit) -> Traits:
    assert isinstance(fit.server, SglangServer)
    return fit.server.traits


async def test_a_server_that_has_all_is_taken_as_it_says(qwen: Path) -> None:
    one = await found(Recorded(qwen), qwen)
    assert (one.context_length, one.dtype, one.capabilities.basis) == (2042, "float32", Basis.PROCESSED)
    assert (traits(one).incremental, traits(one).background) == (True, -1)


@pytest.mark.parametrize(
    ("info", "flag"),
    [
        ({"enable_lora": False}, f"--enable-lora --max-lora-rank 16 {ALL_MODULES}"),
        ({"lora_target_modules": ["q_proj"]}, ALL_MODULES),
        ({"dp_size": 2}, "--dp-size 1"),
    ],
)
async def test_a_flag_that_adapters_need_is_named(qwen: Path, info: dict[str, object], flag: str) -> None:
    with pytest.raises(SettingError, match=flag):
        await found(Recorded(qwen, **info), qwen)
    for unneeded in ("whole", None):
        assert (await found(Recorded(qwen, **info), qwen, unneeded)).context_length == 2042


async def test_all_modules_are_enough(qwen: Path) -> None:
    await found(Recorded(qwen, lora_target_modules=["all"]), qwen)


@pytest.mark.parametrize("version", ["0.4.9.post2", "0.5.22", "main"])
async def test_a_version_that_is_too_old_or_unknown_is_refused(qwen: Path, version: str) -> None:
    with pytest.raises(SettingError, match=rf"SGLang {version}: version 0\.5\.23 or newer"):
        await found(Recorded(qwen, version=version), qwen)


async def test_another_kind_of_server_is_refused(qwen: Path) -> None:
    other = Recorded(qwen)
    other.info = {"success": True}
    with pytest.raises(SettingError, match="not an SGLang server"):
        await found(other, qwen)


async def test_another_tokenizer_is_refused(qwen: Path, llama: Path) -> None:
    other = Recorded(llama, model_path="org/model")
    with pytest.raises(SettingError, match="org/model, whose tokenizer is not that of"):
        await found(other, qwen)


async def test_other_weights_in_a_folder_that_can_be_read_are_refused(qwen: Path, llama: Path) -> None:
    with pytest.raises(SettingError, match="start both with the same model"):
        await found(Recorded(llama), qwen)


async def test_log_probs_that_do_not_change_with_the_temperature_are_raw(qwen: Path) -> None:
    server = Recorded(qwen)
    server.raw = True
    assert (await found(server, qwen)).capabilities.basis is Basis.RAW


@pytest.mark.parametrize(
    ("info", "background"),
    [({"schedule_low_priority_values_first": True}, 1), ({"enable_priority_scheduling": False}, None)],
)
async def test_the_background_comes_after_people(
    qwen: Path, info: dict[str, object], background: int | None
) -> None:
    assert traits(await found(Recorded(qwen, **info), qwen)).background == background


async def test_a_server_that_does_not_answer_is_named_with_what_to_do(unused_tcp_port: int) -> None:
    client = ServerClient(f"http://127.0.0.1:{unused_tcp_port}", key=None, silence_s=1)
    with pytest.raises(SettingError, match=r"no SGLang server answered.*cannot be reached.*afterwit up"):
        await answered(client, label="SGLang", patience_s=0.2)
    await client.close()
