"""Settings of engines that cannot work are refused before anything is loaded."""

from typing import Any

import pytest
from tests.config.test_checks import config_with, refusal_of

from agent_tunix.config.checks import check

OWN = {"engine__name": "agent_tunix", "engine__num_processes": 1}
VLLM = {"engine__name": "vllm", "engine__urls": ["http://localhost:8000"]}


@pytest.mark.parametrize(
    "settings",
    [
        OWN,
        OWN | {"generation__top_k": 5, "model__lora_rank": 7, "evaluation__inference_config": "standard"},
        VLLM,
        VLLM | {"engine__urls": ["https://a:1/", "http://b:2"], "engine__adapter_directory": "/shared"},
    ],
)
def test_a_run_with_an_engine_is_accepted(settings: dict[str, Any]) -> None:
    check(config_with(**settings))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"engine__max_staleness": 1}, "engine.max_staleness=1"),
        ({"engine__urls": ["http://a:1"]}, "engine.urls"),
        (OWN | {"engine__num_processes": 0}, "engine.num_processes"),
        (OWN | {"engine__urls": ["http://localhost:1"]}, "engine.urls"),
        (OWN | {"distributed__mode": "auto"}, "distributed.mode"),
        (VLLM | {"engine__urls": []}, "engine.urls"),
        (VLLM | {"engine__num_processes": 1}, "engine.num_processes"),
        (VLLM | {"engine__urls": ["localhost:8000"]}, "engine.urls"),
        (VLLM | {"engine__urls": ["http://localhost:8000/v1"]}, "engine.urls"),
        (VLLM | {"engine__urls": ["http://another:8000"]}, "engine.adapter_directory"),
        (VLLM | {"generation__top_p": 0.9}, "generation.top_p=0.9"),
        (VLLM | {"evaluation__inference_config": "standard"}, "evaluation.inference_config"),
        (OWN | {"model__quantization": "nf4", "model__lora_rank": 4}, "model.quantization=nf4"),
        (OWN | {"engine__max_staleness": 1, "environment__agent__function": "a.py:f"}, "environment.agent"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    assert key in refusal_of(config_with(**settings))
