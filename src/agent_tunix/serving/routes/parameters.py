"""Parameters of requests, as OpenAI's API and vLLM name them.

A parameter that is not supported is refused by name, unless its value asks for nothing: `frequency_penalty: 0`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent_tunix.web.problems import Problem

_Text = Annotated[str, Field(max_length=1000, min_length=1)]
_Id = Annotated[int, Field(ge=0, lt=2**31)]

# Parameters that change nothing of a reply.
_WITHOUT_EFFECT = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "request_id", "priority"})
# Parameters of other routes that change nothing of their answers either.
_WITHOUT_EFFECT_ELSEWHERE = _WITHOUT_EFFECT | {"model", "lora_int_id"}
# Parameters that are not supported → the values that ask for nothing. So does null.
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (True,),
    "best_of": (1,),
    "continue_final_message": (False,),
    "frequency_penalty": (0,),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "load_inplace": (False,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "return_token_strs": (False,),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "store": (False,),
    "suffix": ("",),
    "use_beam_search": (False,),
}


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(strict=True)

    include_usage: Annotated[bool, Field(description="Send the numbers of tokens in a last event.")] = False


class SamplingParameters(BaseModel):
    """Parameters that both kinds of completions have."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    model: Annotated[str | None, Field(description="The policy or an adapter; null: the policy.")] = None
    temperature: Annotated[float | None, Field(ge=0, le=100, description="0 takes the likeliest tokens.")] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=-1, lt=2**31, description="-1 and 0 keep all tokens.")] = None
    min_p: Annotated[float | None, Field(ge=0, lt=1)] = None
    stop: Annotated[_Text | Annotated[list[_Text], Field(max_length=16)] | None, Field()] = None
    stop_token_ids: Annotated[list[_Id] | None, Field(max_length=64)] = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    n: Annotated[int | None, Field(ge=1, le=128, description="Number of replies to each prompt.")] = None
    return_token_ids: Annotated[
        bool | None, Field(description="Add `prompt_token_ids` and `token_ids` to the answer.")
    ] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def refuse_unsupported(self) -> Self:
        """Raise Problem for a parameter that is not supported."""
        _refuse_unknown(self.model_extra or {}, _WITHOUT_EFFECT)
        if self.stream_options is not None and not self.stream:
            raise Problem(400, "invalid_stream_options", "stream_options requires stream: true", "stream_options")
        return self

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Strings that end a reply."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class ChatParameters(SamplingParameters):
    """A request for the next message of a conversation."""

    messages: Annotated[
        list[dict[str, Any]],
        Field(
            min_length=1,
            max_length=10_000,
            description="The conversation, in OpenAI's form.",
            examples=[[{"role": "user", "content": "What is 3 + 4?"}]],
        ),
    ]
    max_tokens: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None
    tools: Annotated[list[dict[str, Any]] | None, Field(max_length=256, description="Tools, in OpenAI's form.")] = None
    tool_choice: Annotated[Any, Field(description="`auto` or `none`.")] = None
    response_format: Annotated[Any, Field(description='`{"type": "text"}`.')] = None

    @model_validator(mode="after")
    def refuse_unsupported(self) -> Self:
        """Raise Problem for a parameter that is not supported."""
        super().refuse_unsupported()  # type: ignore[operator]  # a method for pydantic
        if self.tool_choice not in (None, "auto", "none"):
            raise unsupported("tool_choice", f"it must be auto or none, not {self.tool_choice!r:.80}")
        if self.response_format not in (None, {"type": "text"}):
            raise unsupported("response_format", 'only {"type": "text"} is supported; ask for the form in a message')
        if self.top_logprobs and not self.logprobs:
            raise Problem(400, "invalid_top_logprobs", "top_logprobs requires logprobs: true", "top_logprobs")
        return self


class CompletionParameters(SamplingParameters):
    """A request for continuations of prompts."""

    prompt: Annotated[
        str | list[str] | list[_Id] | list[list[_Id]],
        Field(description="A text, token ids, or a list of either.", examples=["3 + 4 ="]),
    ]
    max_tokens: Annotated[int | None, Field(ge=0, lt=2**31, description="16 by default; 0 only with echo.")] = None
    echo: Annotated[bool | None, Field(description="Repeat the prompt before its continuation.")] = None
    logprobs: Annotated[
        int | None, Field(ge=0, le=20, description="Likeliest tokens to report at each place; null: no probabilities.")
    ] = None

    @model_validator(mode="after")
    def refuse_unsupported(self) -> Self:
        """Raise Problem for a parameter that is not supported."""
        super().refuse_unsupported()  # type: ignore[operator]  # a method for pydantic
        if self.stream and self.echo:
            raise unsupported("echo", "it cannot be combined with stream: true; remove one of them")
        if self.max_tokens == 0 and not self.echo:
            raise Problem(400, "invalid_max_tokens", "max_tokens must be at least 1 without echo", "max_tokens")
        return self

    @property
    def prompts(self) -> list[Any]:
        """The prompts: texts, or lists of token ids."""
        prompt: Any = self.prompt
        is_single = isinstance(prompt, str) or (prompt and isinstance(prompt[0], int))
        return [prompt] if is_single else prompt


class OtherParameters(BaseModel):
    """Parameters of a request that samples nothing."""

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="after")
    def refuse_unsupported(self) -> Self:
        """Raise Problem for a parameter that is not supported."""
        _refuse_unknown(self.model_extra or {}, _WITHOUT_EFFECT_ELSEWHERE)
        return self


class LoadAdapterParameters(OtherParameters):
    """An adapter to load."""

    lora_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]
    lora_path: Annotated[str, Field(min_length=1, max_length=4096, description="Directory in PEFT's format.")]


class UnloadAdapterParameters(OtherParameters):
    """An adapter to unload."""

    lora_name: str


class LoadWeightsParameters(OtherParameters):
    """Weights to sample with from now on."""

    path: Annotated[str, Field(min_length=1, max_length=4096, description="Hugging Face directory of the model.")]
    version: Annotated[int, Field(ge=0, lt=2**31, description="Number of the weights, which replies then name.")]


def unsupported(name: str, message: str) -> Problem:
    """Return the problem for a parameter whose value is not supported."""
    return Problem(400, "unsupported_parameter", f"{name}: {message}", name)


def _refuse_unknown(extra: Mapping[str, Any], without_effect: frozenset[str]) -> None:
    for name, value in extra.items():
        ways = _DEFAULTS.get(name, ())
        is_default = any(value == one and isinstance(value, bool) is isinstance(one, bool) for one in ways)
        if value is not None and name not in without_effect and not is_default:
            known = f"only {name}={ways[0]!r} is" if ways else "it is not"
            raise unsupported(name, f"{known} supported here; remove it")
