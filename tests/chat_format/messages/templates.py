"""Small chat templates that ask of messages what the templates of the families ask."""

from __future__ import annotations

from tests.fakes.templates import LLAMA3_TEMPLATE, QWEN3_TEMPLATE

_CALL_IDS = "{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
_TURNS = "{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"

GEMMA2 = """\
{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}TURNS{%- endif %}
{{- '<start_of_turn>' + message.role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}""".replace(
    "TURNS", _TURNS
)
"""No system message, and strictly in turns. Gemma 1 and 2."""

MISTRAL = (
    (
        """\
{%- set ns = namespace(place=0) %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- if not loop.first %}{{- raise_exception('Only user and assistant roles are supported!') }}{%- endif %}
{{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}IDS{%- endif %}
{{- '[TOOL_RESULTS]' + message.tool_call_id + '[TOOL_CONTENT]' + message.content + '[/TOOL_RESULTS]' }}
{%- elif message.tool_calls %}
{{- message.content + '[TOOL_CALLS] [' }}
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}IDS{%- endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
{%- endfor %}{{- ']</s>' }}
{%- else %}
{%- if (message.role == 'user') != (ns.place % 2 == 0) %}TURNS{%- endif %}
{%- set ns.place = ns.place + 1 %}
{{- '[INST]' + message.content + '[/INST]' if message.role == 'user' else message.content + '</s>' }}
{%- endif %}
{%- endfor %}"""
    )
    .replace("IDS", _CALL_IDS)
    .replace("TURNS", _TURNS)
)
"""Ids of nine letters and digits, and people's messages and plain replies strictly in turns."""

MINISTRAL = """\
{%- set ns = namespace(place=0) %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{%- if (message.role == 'user') != (ns.place % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate, except for tool calls and results.') }}
{%- endif %}{%- set ns.place = ns.place + 1 %}
{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'system' and loop.first %}
{{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' %}
{{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.role == 'assistant' %}
{%- if not message.content and not message.tool_calls %}
{{- raise_exception('An assistant message must have content or a list of tool calls.') }}
{%- endif %}{{- message.content }}
{%- for call in message.tool_calls or () %}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments | tojson }}
{%- endfor %}{{- '</s>' }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}
{%- else %}
{{- raise_exception('Only user, assistant and tool roles are supported.') }}
{%- endif %}
{%- endfor %}"""
"""Turns as for `MISTRAL`, and no empty reply."""

LAST_SYSTEM = """\
{#- It has no role of a developer. #}
{%- set ns = namespace(system='') %}
{%- for message in messages if message.role == 'system' %}{%- set ns.system = message.content %}{%- endfor %}
{{- ns.system }}
{%- for message in messages if message.role in ('user', 'assistant', 'tool') %}
{{- '<' + message.role + '>' + message.content }}
{%- for call in message.tool_calls or () %}
{{- '<call>' + call.function.name + call.function.arguments | tojson }}
{%- endfor %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}"""
"""It shows the last system message alone, as those of DeepSeek R1's distilled models."""

HARMONY = """\
{{- '<|start|>system<|message|>Reasoning: medium' }}
{%- for tool in tools or () %}
{{- '// ' + tool.function.description + '\\ntype ' + tool.function.name + ' = () => any;' }}
{%- endfor %}{{- '<|end|>' }}
{%- set rest = messages %}
{%- if messages[0].role in ('developer', 'system') %}
{{- '<|start|>developer<|message|>' + messages[0].content + '<|end|>' }}{%- set rest = messages[1:] %}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in rest %}
{%- if message.tool_calls %}
{%- if message.content and message.thinking %}
{{- raise_exception('Cannot pass both content and thinking in an assistant message with tool calls!') }}
{%- endif %}
{%- if message.content or message.thinking %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + (message.thinking or message.content) + '<|end|>' }}
{%- endif %}
{%- set call = message.tool_calls[0].function %}{%- set last.name = call.name %}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
{{- call.arguments | tojson + '<|call|>' }}
{%- elif message.role == 'assistant' %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'tool' %}
{%- if last.name is none %}{{- raise_exception('There was no message with a call before.') }}{%- endif %}
{{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'user' %}
{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"""  # noqa: E501 - one line of the template is one message
"""Only the first call of a message, and one system message, which may be a developer's."""

DEEPSEEK = """\
{%- for message in messages if message.role == 'system' %}{{- message.content + '\\n\\n' }}{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<｜User｜>' + message.content }}
{%- elif message.role == 'tool' %}{{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
{%- elif message.role == 'assistant' %}
{{- '<｜Assistant｜></think>' + message.content }}
{%- if message.tool_calls %}
{{- '<｜tool▁calls▁begin｜>' }}
{%- for call in message.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments }}
{{- '<｜tool▁call▁end｜>' }}
{%- endfor %}{{- '<｜tool▁calls▁end｜>' }}
{%- endif %}{{- '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<｜Assistant｜></think>' }}{%- endif %}"""
"""Arguments as text. It gathers system messages itself, wherever they are."""

QWEN35 = """\
{%- set ns = namespace(asked=false) %}
{%- for message in messages if message.role == 'user' %}{%- set ns.asked = true %}{%- endfor %}
{%- if not ns.asked %}{{- raise_exception('No user query found in messages.') }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endif %}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' }}
{%- if message.role == 'assistant' %}
{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}
{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or () %}
{{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for key, value in call.function.arguments | items %}
{{- '<parameter=' + key + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
{%- endfor %}{{- '</function>\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"""
"""A system message at the beginning only, a person's anywhere, and arguments that have names."""

KIMI = """\
{%- for message in messages %}
{{- '<|im_' + message.role + '|>' + message.content }}
{%- if message.role == 'tool' %}{{- '## Return of ' + message.tool_call_id }}{%- endif %}
{%- if message.tool_calls %}
{{- '<|tool_calls_section_begin|>' }}
{%- for call in message.tool_calls %}
{{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' + call.function.arguments | tojson }}
{{- '<|tool_call_end|>' }}
{%- endfor %}{{- '<|tool_calls_section_end|>' }}
{%- endif %}{{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>' + ('<think>' if thinking else '') }}{%- endif %}"""
"""A call is shown by its id alone."""

GLM = """\
{%- for message in messages %}
{{- '<|' + ('observation' if message.role == 'tool' else message.role) + '|>\\n' + message.content }}
{%- for call in message.tool_calls or () %}
{{- '\\n<tool_call>' + call.function.name }}
{%- for key, value in call.function.arguments.items() %}
{{- '\\n<arg_key>' + key + '</arg_key>\\n<arg_value>' }}
{{- (value if value is string else value | tojson) + '</arg_value>' }}
{%- endfor %}{{- '\\n</tool_call>' }}
{%- endfor %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""
"""It goes through the arguments itself."""

GEMMA4 = """\
{%- for message in messages if message.role != 'tool' %}
{{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' + message.content }}
{%- for call in message.tool_calls or () %}
{{- '<|tool_call>call:' + call.function.name + '{' }}
{%- for key, value in call.function.arguments.items() %}
{{- (',' if not loop.first else '') + key + ':' }}
{{- '<|"|>' + value + '<|"|>' if value is string else value | tojson }}
{%- endfor %}{{- '}<tool_call|>' }}
{%- set at = loop.index0 %}
{%- for result in messages if result.role == 'tool' and result.tool_call_id == call.id %}
{{- '<|tool_response>response:' + result.name + '{' + result.content + '}<tool_response|>' }}
{%- endfor %}
{%- endfor %}{{- '<turn|>\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|turn>model\\n' }}{%- endif %}"""
"""It shows a result with its call, and so none whose call is not there."""

PHI3 = """\
{%- for message in messages if message.role in ('system', 'user', 'assistant') %}
{{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"""
"""It leaves out tools, calls and results."""

IDEFICS = """\
{%- for message in messages %}
{{- message.role | capitalize + ': ' }}
{%- for part in message.content if part.type == 'text' %}{{- part.text }}{%- endfor %}{{- '<end>\\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- 'Assistant:' }}{%- endif %}"""
"""Contents are lists of parts."""

TEMPLATES = {
    "glm": GLM,
    "gemma4": GEMMA4,
    "phi3": PHI3,
    "idefics": IDEFICS,
    "kimi": KIMI,
    "gemma2": GEMMA2,
    "mistral": MISTRAL,
    "ministral": MINISTRAL,
    "last_system": LAST_SYSTEM,
    "harmony": HARMONY,
    "deepseek": DEEPSEEK,
    "qwen35": QWEN35,
    "qwen3": QWEN3_TEMPLATE,
    "llama3": LLAMA3_TEMPLATE,
}
