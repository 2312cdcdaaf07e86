"""vLLM's own tests of its tool parsers, run in its environment against our parser (`our_parsers.py`).

They need vLLM's sources, which its wheels leave out: VLLM_SOURCE names a checkout of that release, or
its unpacked `.tar.gz` from the package index.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.servers.install import environment_of
from tests.servers.published import published

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[3]
SOURCE = os.environ.get("VLLM_SOURCE")
FILES = (
    *(
        "deepseekv3",
        "deepseekv31",
        "gemma4",
        "glm47_moe",
        "granite",
        "granite4",
        "hermes",
        "jamba",
        "kimi_k2",
    ),
    *("lfm2", "llama3_json", "llama4_pythonic", "minimax_m2", "olmo3", "pythonic", "qwen3coder"),
)

OTHERWISE = {
    "not the parser's: vLLM's grammar, a time limit, ids (a template gets those that it prescribes)": (
        r".*::test_(regex_timeout_handling|adjust_request_).*",
        r"kimi_k2::.*(native_id|TestStreamingHappyPath).*",
    ),
    "only the end of a response completes these calls, and no test gives it": (
        r"(llama4_)?pythonic::test_tool_call\[.*_streaming\d?\]",
        r"(llama4_)?pythonic::test_streaming_tool_call_with_large_steps",
    ),
    "one piece of text may complete several calls": (
        r"(lfm2|olmo3)::test_tool_call\[parallel_calls_streaming\]",
        r"jamba::test_extract_tool_calls_streaming\[parallel_tools\]",
        r"granite::.*test_parallel_tool_calls\[True\]",
    ),
    "white space around calls is no content": (
        r"kimi_k2::.*::test_extract_tool_calls\[.*",
        r"minimax_m2::.*::test_content_before_tool_call",
        r"granite4::test_tool_call_parser_complex.*",
        r"jamba::test_extract_tool_calls_streaming\[single_tool.*",
    ),
    "text after calls is content, and so is a call that was cut or cannot be read": (
        r"deepseekv31::test_extract_tool_calls_with_multiple_tools",
        r"deepseekv3::.*::test_malformed_input\[False\]",  # expected to fail, in vLLM
        r"gemma4::.*(incomplete_tool_call|malformed_|three_mixed_calls).*",
        r"kimi_k2::.*(invalid_json|noise_between|no_end_marker|content_after).*",
        r"lfm2::test_echoed_tool_call_body_not_leaked_to_content",
        r"lfm2::test_tool_call\[nested_(quote|python_c)_.*",  # unescaped quotes in quotes
    ),
    "JSON within a text is an example, not Llama's call": (
        r"llama3_json::test_extract_tool_calls_(simple|multiple_json_with_surrounding_text)",
    ),
    "more is read": (
        r"kimi_k2::.*::test_invalid_funcall_id_skipped",  # an id without a number
        r"llama3_json::test_extract_tool_calls_missing_parameters_and_arguments_key",
        r"minimax_m2::.*(test_multiple_params|test_header_and_params).*",  # no schema: a number
    ),
}
"""Tests that fail, by the reason for which our parser differs."""


@pytest.mark.skipif(not SOURCE, reason="VLLM_SOURCE names no folder with vLLM's sources")
def test_vllms_tests_of_its_parsers_pass_but_for_those_that_differ_by_choice(tmp_path: Path) -> None:
    source, python = Path(str(SOURCE)), str(environment_of("vllm") / "bin" / "python")
    extra = tmp_path / "packages"
    install = [python, "-m", "pip", "install", "--quiet", "--target", str(extra), "pytest", "orjson"]
    subprocess.run(install, check=True)
    (tmp_path / "tests").symlink_to(source / "tests")
    paths = (Path(__file__).parent, ROOT / "src", extra, tmp_path)
    run = subprocess.run(
        [python, "-m", "pytest", "-p", "our_parsers", "-p", "no:cacheprovider", "-rA", "-q", "--no-header"]
        + [f"tests/tool_parsers/test_{name}_tool_parser.py" for name in FILES],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": ":".join(map(str, paths)), "TOKENIZER": str(published()), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    ended = re.findall(
        r"^(PASSED|FAILED|ERROR) \S*/test_(\w+)_tool_parser\.py(::\S+)", run.stdout, re.MULTILINE
    )
    assert len(ended) > 300, run.stdout[-2000:]
    known = [pattern for patterns in OTHERWISE.values() for pattern in patterns]
    failed = [name + test for how, name, test in ended if how != "PASSED"]
    assert [test for test in failed if not any(re.fullmatch(pattern, test) for pattern in known)] == []
    assert [pattern for pattern in known if not any(re.fullmatch(pattern, test) for test in failed)] == []
