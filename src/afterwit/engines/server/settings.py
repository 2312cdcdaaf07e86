"""The settings of engines on a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from afterwit.ranges import above, at_least, key_from, one_of_its_choices

Swap = Literal["adapters", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The server's address, and how long to wait for it."""

    label: ClassVar[str] = "model"
    """The kind's name in messages."""
    reuses: ClassVar[bool] = True
    """Whether its connections serve many requests."""

    url: str | tuple[str, ...] = "http://127.0.0.1:8000"
    """Address of the server, without `/v1`; a list: several servers of one model."""
    api_key_env: str | None = None
    """Environment variable that holds the server's API key, if it needs one."""
    swap: Swap = "adapters"
    """How new weights are loaded. `adapters`: as LoRA adapters next to the base, which judges. `whole`,
    for `learner.lora_rank = 0`: in place, while requests wait."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The server's precision. auto: as it reports, else as in config.json."""
    patience_s: float = 120.0
    """Seconds that requests, and the start, wait for a server that is away; then a request gets a 502."""
    silence_s: float = 300.0
    """Seconds without a byte before the server counts as gone. It sends none while it reads a prompt."""
    watch_s: float = 1.0
    """Seconds between two health checks."""

    start_s: float = 1800.0
    """Seconds for a server that `afterwit up` starts to load the model."""
    flags: tuple[str, ...] = ()
    """Further flags for a server that `afterwit up` starts; they override Afterwit's."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        above(self, 0, "patience_s", "silence_s", "watch_s", "start_s")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"url is {url!r}, but must begin with http:// or https://")
        if not self.urls or len({url.rstrip("/") for url in self.urls}) < len(self.urls):
            raise ValueError(f"url is {list(self.urls)}, but must name at least one server, and none twice")

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url,) if isinstance(self.url, str) else self.url

    def key(self, environment: Mapping[str, str]) -> str | None:
        """The server's API key. SettingError if its variable is not set."""
        return key_from(environment, self.api_key_env, setting="engine.api_key_env")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings(ServerSettings):
    """A vLLM server that is running, or is started by `afterwit up`."""

    label: ClassVar[str] = "vLLM"

    kind: Literal["vllm"] = "vllm"
    """The model runs in a vLLM server; this process needs no torch."""
    command: tuple[str, ...] = ("vllm",)
    """The program that `afterwit up` starts, such as `["/opt/vllm/bin/vllm"]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSettings(ServerSettings):
    """A `llama-server` that is running, or is started by `afterwit up`. New versions are processes next to
    it."""

    label: ClassVar[str] = "llama.cpp"
    reuses: ClassVar[bool] = False

    kind: Literal["llama_cpp"] = "llama_cpp"
    """A GGUF file runs in llama.cpp's server as it is; this process needs no torch."""
    url: str | tuple[str, ...] = "http://127.0.0.1:8080"
    """Address of the server, without `/v1`."""
    command: tuple[str, ...] = ("llama-server",)
    """The program that `afterwit up` starts, and that serves each version."""
    context_length: int = 16_384
    """Tokens of prompt and response together, at most the model's limit."""
    slots: int = 2
    """Responses at once; others wait. Each takes the memory of a whole context in each process."""

    def __post_init__(self) -> None:
        ServerSettings.__post_init__(self)
        at_least(self, 1, "context_length", "slots")
        if self.swap != "adapters":
            raise ValueError(f"swap is {self.swap!r}, but llama.cpp takes adapters only")
        if len(self.urls) > 1:
            raise ValueError(f"url names {len(self.urls)} servers, and llama.cpp's is one")


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSettings(ServerSettings):
    """An SGLang server that is running, or is started by `afterwit up`."""

    label: ClassVar[str] = "SGLang"

    kind: Literal["sglang"] = "sglang"
    """The model runs in an SGLang server; this process needs no torch."""
    url: str | tuple[str, ...] = "http://127.0.0.1:30000"
    """Address of the server, without `/v1`; a list: several servers of one model."""
    command: tuple[str, ...] = ("python3", "-m", "sglang.launch_server")
    """The program that `afterwit up` starts, such as `["/opt/sglang/bin/python", "-m",
    "sglang.launch_server"]`."""


AnyServer = VllmSettings | LlamaCppSettings | SglangSettings
