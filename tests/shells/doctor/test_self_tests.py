"""Self-tests at the start: what stops it, and what must not."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from afterwit.build import async_store, store_of_model
from afterwit.chat_format.families import AUTO
from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.manifest import exclusive
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.doctor import machine
from afterwit.doctor import model as files
from afterwit.doctor.finding import Finding
from afterwit.doctor.judge import judges, kept_by
from afterwit.doctor.report import QUICK, findings_of, report
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.home.home import write_config
from afterwit.judging.ability import Examination, Examiner
from afterwit.judging.hinted_prompts import Placement
from afterwit.judging.settings import JudgeSettings
from afterwit.version import Origin, Probe, Version
from tests.fakes.judge import FakeJudge, competent
from tests.fakes.models import tiny_qwen3


def checked(versions: Versions, tool_call_parser: str = AUTO) -> dict[str, Finding]:
    load = cache(partial(Renderer.load, versions.base))
    found = files.check_model(versions.base, load, versions, Placement.LAST_USER, tool_call_parser)
    return {finding.name: finding for finding in found}


def test_a_version_without_its_weights_does_not_stop_the_start(tmp_path: Path) -> None:
    base = tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    versions = Versions(root=tmp_path / "versions", base=base)
    probe = Probe(ids=(1, 2), logprobs=(-1.0,))
    for number in (0, 1, 2):
        origin = Origin.UPDATE if number else Origin.BASE
        parent = number - 1 if number else None
        version = Version(number=number, parent=parent, origin=origin, created=0.0, probe=probe)
        versions.write(version, lambda folder: shutil.copytree(base, folder, dirs_exist_ok=True) and None)
    (versions.place(2) / "model.safetensors").unlink()
    assert all(finding.ok for finding in checked(versions).values())
    (versions.place(1) / "tokenizer.json").write_text("{")
    (fault,) = [finding for finding in checked(versions).values() if not finding.ok]
    assert "000001/tokenizer.json cannot be read" in fault.seen
    assert "afterwit rollback" in fault.remedy


def test_a_model_without_a_template_is_told_once(tmp_path: Path) -> None:
    base = tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    (base / "chat_template.jinja").unlink()
    (fault,) = checked(Versions(root=tmp_path / "versions", base=base)).values()
    assert "chat template" in fault.seen
    assert fault.remedy == "use a chat model, or add a chat_template.jinja"


def test_what_is_tested_next_is_said_before_it_is_tested(tmp_path: Path) -> None:
    base, said, order = tiny_qwen3(tmp_path / "base", num_hidden_layers=1), list[str](), list[str]()
    settings = Settings(model=str(base))
    for finding in findings_of(settings, tmp_path / "home", said.append):
        order += [*said, finding.name]
        said.clear()
        if finding.name == "tokenizer":
            break
    assert order[:2] == ["testing the machine", "home"]
    assert order.index("testing the model's files and what was learned so far") < order.index("template")


def test_quick_checks_load_no_weights(tmp_path: Path) -> None:
    base, said = tiny_qwen3(tmp_path / "base", num_hidden_layers=1), list[str]()
    settings = Settings(model=str(base), judge=JudgeSettings(enabled=False))
    found = list(findings_of(settings, tmp_path / "home", said.append, quick=True))
    assert {"home", "disk", "template", "store"} <= {finding.name for finding in found}
    assert len(said) == QUICK


@pytest.mark.parametrize(
    ("template", "named", "words"),
    [
        (None, "auto", "are read as the chat template teaches: hermes"),
        pytest.param(None, "glm", "are read as gateway.tool_call_parser sets: glm", marks=pytest.mark.slow),
        ("{{ messages[-1].content }}", "auto", "does not offer tools to the model: calls stay text"),
        ("{{ tools }}{{ messages[-1].content }}", "auto", "in no convention that is known here"),
        pytest.param("{{ tools }}{{ messages[-1].content }}", "none", "sets: none", marks=pytest.mark.slow),
    ],
)
def test_how_tool_calls_are_read_is_said_and_stops_nothing(
    tmp_path: Path, template: str | None, named: str, words: str
) -> None:
    base = tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    if template is not None:
        (base / "chat_template.jinja").write_text(template)
    found = checked(Versions(root=tmp_path / "versions", base=base), named)["tool calls"]
    assert found.ok
    assert words in found.seen


def test_the_models_own_sampling_is_shown_next_to_what_a_request_without_one_gets(tmp_path: Path) -> None:
    base = tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    versions = Versions(root=tmp_path / "versions", base=base)

    def seen() -> str:
        return checked(versions)["sampling"].seen

    (base / "generation_config.json").write_text('{"eos_token_id": 2}')
    assert seen() == "a request without a temperature is answered at 1"
    (base / "generation_config.json").write_text(
        '{"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}'
    )
    assert "the model suggests temperature 0.6, top_k 20: send these" in seen()


def test_the_memory_of_keys_and_values_is_said(tmp_path: Path) -> None:
    """Two layers, two key heads of 16 in fp32: 512 bytes a token."""
    base = tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    settings = Settings(model=str(base), engine=EmbeddedSettings(device="cpu", prefix_cache_gib=0.5))
    seen = {
        finding.name: finding.seen for finding in machine.check_machine(settings, tmp_path / "home", base)
    }
    assert "512.0 MiB, 2,097,152 tokens; a context of 2,048 tokens takes 512 KiB" in seen["engine memory"]


async def test_a_judge_that_answers_rightly_is_well() -> None:
    judge = FakeJudge(competent)
    found = Examination(judge, JudgeSettings(), ())
    said = "This model: it writes votes (24 of 24 shipped replies right), and hints"
    assert await judges(found, lambda found, ability: None) == said


@pytest.mark.parametrize("set_up", [True, False])
async def test_a_home_that_was_set_up_keeps_what_the_test_of_the_judge_found(
    tmp_path: Path, set_up: bool
) -> None:
    home, base = tmp_path / "home", tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    if set_up:
        write_config(home, {"model": str(base)})
    settings = Settings(model=str(base))
    found = Examination(FakeJudge(competent), settings.judge, ())
    await judges(found, kept_by(settings, home, base))
    assert home.exists() == set_up
    with closing(store_of_model(settings, home, base)) as store:
        examiner = Examiner(async_store(store), found)
        assert await examiner.is_known() == set_up
        other = Examination(FakeJudge(competent), replace(settings.judge, thinking=True), ())
        assert not await Examiner(async_store(store), other).is_known()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<think>Let me see. The response", "0 of 3 probe"),
        ("", "0 of 3 probe"),
        (r"\boxed{1}", "1 of 3 probes"),
    ],
)
async def test_a_judge_that_cannot_judge_is_a_fault_with_its_remedy(answer: str, said: str) -> None:
    found = Examination(FakeJudge(lambda messages: answer), JudgeSettings(), ())
    with pytest.raises(AssertionError, match=f"This model cannot judge: {said}.*Set judge.url"):
        await judges(found, lambda found, ability: None)


def test_a_gateway_over_the_same_home_may_hold_the_port(tmp_path: Path) -> None:
    with exclusive(tmp_path / ".gateway.lock", purpose="a test", wait=False):
        assert "has its port" in machine._port(Settings(), tmp_path)


def test_the_findings_are_printed_without_what_a_terminal_obeys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tiny_qwen3(tmp_path / "base", num_hidden_layers=1)
    report(Settings(model=str(base)), tmp_path / "\x1b[2J[bold]home", quick=True)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[2J[bold]home" in shown.replace("\n", ""), "wrapped, as any line"
