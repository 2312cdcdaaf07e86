"""A plugin of pytest in vLLM's environment: its tests of tool parsers call our parser (`test_parsers.py`)."""

from __future__ import annotations

import importlib
import os
from typing import Any

import transformers
import vllm.tokenizers
from vllm.entrypoints.generate.base.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)

from afterwit.chat_format import families
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import CallDelta, ParsedCall, TextDelta

PARSERS = {
    "deepseekv3_tool_parser.DeepSeekV3ToolParser": families.DEEPSEEK_V3,
    "deepseekv31_tool_parser.DeepSeekV31ToolParser": families.DEEPSEEK_V31,
    "gemma4_engine_tool_parser.Gemma4EngineToolParser": families.GEMMA,
    "glm47_moe_tool_parser.Glm47MoeModelToolParser": families.GLM,
    "granite4_tool_parser.Granite4ToolParser": families.HERMES,
    "granite_engine_tool_parser.GraniteEngineToolParser": families.GRANITE,
    "hermes_tool_parser.Hermes2ProToolParser": families.HERMES,
    "jamba_tool_parser.JambaToolParser": families.JAMBA,
    "kimi_k2_tool_parser.KimiK2ToolParser": families.KIMI,
    "lfm2_tool_parser.Lfm2ToolParser": families.LFM,
    "llama_tool_parser.Llama3JsonToolParser": families.LLAMA,
    "llama4_pythonic_tool_parser.Llama4PythonicToolParser": families.LLAMA4,
    "minimax_m2_tool_parser.MinimaxM2ToolParser": families.MINIMAX,
    "mistral_tool_parser.MistralToolParser": families.MISTRAL_ARGS,
    "olmo3_tool_parser.Olmo3PythonicToolParser": families.OLMO,
    "pythonic_tool_parser.PythonicToolParser": families.PYTHONIC,
    "qwen3_engine_tool_parser.Qwen3EngineToolParser": families.QWEN_XML,
    "seed_oss_engine_tool_parser.SeedOssEngineToolParser": families.SEED,
}


def dumped(tools: Any) -> list[dict[str, Any]]:
    """Tools as Chat Completions has them. Those of Responses are the function itself."""
    given = [tool if isinstance(tool, dict) else tool.model_dump() for tool in tools or ()]
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in given]


def adopt(parser: Any, convention: families.Convention) -> None:
    def begin(self: Any, tokenizer: Any, tools: Any = None, *args: Any, **kwargs: Any) -> None:
        self.tools, self.model_tokenizer, self.reading = tools, tokenizer, None
        self.prev_tool_call_arr, self.streamed_args_for_tool = [], []

    def ours(self: Any, request: Any) -> ResponseParser:
        tools = getattr(request, "tools", None) or self.tools
        return ResponseParser(convention, tools=dumped(tools))

    def whole(self: Any, model_output: str, request: Any = None) -> ExtractedToolCallInformation:
        reading = ours(self, request)
        events = [*reading.push(model_output), *reading.finish()]
        text = "".join(each.text for each in events if isinstance(each, TextDelta))
        calls = [
            ToolCall(type="function", function=FunctionCall(name=each.name, arguments=each.arguments))
            for each in events
            if isinstance(each, ParsedCall)
        ]
        return ExtractedToolCallInformation(tools_called=bool(calls), tool_calls=calls, content=text or None)

    def streamed(
        self: Any,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Any = (),
        current_token_ids: Any = (),
        delta_token_ids: Any = (),
        request: Any = None,
    ) -> DeltaMessage | None:
        if self.reading is None or current_text == delta_text:
            self.reading, self.sent = ours(self, request), {}
        text, calls = "", []
        for each in self.reading.push(delta_text):
            if isinstance(each, TextDelta):
                text += each.text
            elif isinstance(each, CallDelta | ParsedCall):
                first, before = each.index not in self.sent, self.sent.get(each.index, "")
                more = each.arguments[len(before) :] if isinstance(each, ParsedCall) else each.arguments
                self.sent[each.index] = before + more
                begun = {"id": f"chatcmpl-tool-{each.index}", "type": "function"} if first else {}
                function = DeltaFunctionCall(name=each.name if first else None, arguments=more)
                calls.append(DeltaToolCall(index=each.index, function=function, **begun))
        return DeltaMessage(content=text or None, tool_calls=calls) if text or calls else None

    parser.__init__, parser.extract_tool_calls, parser.extract_tool_calls_streaming = begin, whole, streamed


def tokenizer(*args: Any, **kwargs: Any) -> Any:
    """A published one for all models, in which each mark is one token."""
    found = load(os.environ["TOKENIZER"])
    pairs = [(call.begin, call.end) for each in PARSERS.values() for call in each.calls]
    found.add_tokens([mark for marks in (*pairs, *MARKS) for mark in marks if mark])
    return found


MARKS = [(*each.wrappers, *each.inner) for each in PARSERS.values()]
load = transformers.AutoTokenizer.from_pretrained
vllm.tokenizers.get_tokenizer = transformers.AutoTokenizer.from_pretrained = tokenizer
for name, convention in PARSERS.items():
    module, _, kind = name.partition(".")
    adopt(getattr(importlib.import_module(f"vllm.tool_parsers.{module}"), kind), convention)
