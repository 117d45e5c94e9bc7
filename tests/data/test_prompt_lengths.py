"""The longest prompt of a run is measured with tools and the text of `reset`, within the model's context."""

import json
from pathlib import Path

import pytest

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config
from agent_tunix.data import load_splits
from agent_tunix.data.prompt_lengths import EpisodeOverhead, MeasuredPrompts, prompt_limit, with_prompt_length
from agent_tunix.data.prompting import encode_examples, measure_stream, settle_prompts
from agent_tunix.environments.running import EnvironmentSet
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.config_file import read_context_length
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.runs.environment_setup import make_episode_encoder, open_environments
from agent_tunix.runs.preflight import preflight
from tests.raising import raises

ENVIRONMENT = '''
class Env:
    """An environment."""
    def reset(self, **row):
        return "word " * row["words"]
    def look(self, place: str) -> str:
        """Look at a place, and describe everything that can be seen there in a few words.

        Args:
            place: The place.
        """
        return place
'''


def config_of(*overrides: str) -> Config:
    return settle_prompts(compose_overrides(["model=tiny_tools", "training.train_fraction=0.9", *overrides]))


def lengths_of(config: Config, context: int | None = None) -> tuple[Config, list[int]]:
    """Return the configuration with the longest prompt, and the tokens of each prompt as an episode begins."""
    tokenizer = Tokenizer(find_model_directory(config.model), config.prompt)
    with open_environments(config, Path.cwd()) as environments:
        overhead = None
        if isinstance(environments, EnvironmentSet):
            overhead = EpisodeOverhead(make_episode_encoder(config, tokenizer), environments)
        train, held_out, _ = load_splits(config)
        prompts = encode_examples([*train, *held_out], tokenizer, config, context=context, overhead=overhead)
        measured = prompts.measured
        settled = with_prompt_length(config, measured, prompt_limit(config, context), overhead)
        if overhead is None:
            return settled, list(measured.lengths)
        return settled, [tokens for _, tokens in overhead.begin(measured, range(len(measured.lengths)))]


def write_rows(directory: Path, words: list[int]) -> str:
    rows = [{"question": f"Look {n} times.", "answer": "1", "words": n} for n in words]
    (directory / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (directory / "env.py").write_text(ENVIRONMENT)
    return f"data.path={directory / 'rows.jsonl'}"


@pytest.mark.parametrize("overrides", [[], ["environment=calculator"], ["prompt.num_few_shot=2"]])
def test_every_prompt_fits_and_the_width_is_a_multiple_of_64(overrides: list[str]) -> None:
    settled, lengths = lengths_of(config_of("data.num_train=40", "data.num_test=8", *overrides))
    width = settled.generation.max_prompt_length
    assert width is not None
    assert width % 64 == 0
    assert max(lengths) <= width < max(lengths) + 128


def test_the_default_width_is_64() -> None:
    settled, _ = lengths_of(settle_prompts(compose_overrides([])), context=2048)
    assert settled.generation.max_prompt_length == 64


def test_the_text_of_reset_counts_with_a_reserve_if_it_differs(tmp_path: Path) -> None:
    data = write_rows(tmp_path, [5 + n % 11 for n in range(60)])
    config = config_of(data, f"environment.name={tmp_path / 'env.py'}:Env", "environment.execution=inline")
    settled, lengths = lengths_of(config)
    assert len(lengths) == 60
    assert max(lengths) <= (settled.generation.max_prompt_length or 0)


def test_a_given_length_stays(tmp_path: Path) -> None:
    settled, _ = lengths_of(config_of("generation.max_prompt_length=200"))
    assert settled.generation.max_prompt_length == 200


def test_a_given_length_without_room_for_reset_is_refused_before_the_model_loads(tmp_path: Path) -> None:
    data = write_rows(tmp_path, [200, 300])
    config = config_of(
        data,
        f"environment.name={tmp_path / 'env.py'}:Env",
        "environment.execution=inline",
        "generation.max_prompt_length=160",
    )
    with raises(DataError, "invalid_prompt"):
        lengths_of(config)


def test_a_given_length_without_room_for_the_tools_is_refused_at_once() -> None:
    config = compose_overrides(["model=tiny_tools", "environment=calculator", "generation.max_prompt_length=40"])
    with raises(ConfigError, "invalid_prompt"):
        preflight(config, Path.cwd())
    enough = compose_overrides(["model=tiny_tools", "environment=calculator", "generation.max_prompt_length=64"])
    assert preflight(enough, Path.cwd()).config.generation.max_prompt_length == 64


def test_the_context_of_the_model_limits_prompts(tmp_path: Path) -> None:
    rows = [{"question": "word " * n, "answer": "1"} for n in (5, 10, 400)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = config_of(f"data.path={tmp_path / 'rows.jsonl'}", "evaluation.num_samples=0")
    assert read_context_length(find_model_directory(config.model)) == 2048
    settled, lengths = lengths_of(config, context=200)
    assert len(lengths) == 2
    assert settled.generation.max_prompt_length is not None
    assert settled.generation.max_prompt_length + config.generation.max_generation_steps <= 200
    config.generation.over_long = "refuse"
    with raises(DataError, "invalid_prompt"):
        lengths_of(config, context=200)


def test_the_cache_limits_prompts_too() -> None:
    config = config_of("generation.cache_size=120")
    limit = prompt_limit(config, 2048)
    assert limit.tokens == 120 - config.generation.max_generation_steps


def test_a_stream_has_room_for_longer_prompts() -> None:
    config = config_of("data.streaming=true", "data.num_train=64")
    tokenizer = Tokenizer(find_model_directory(config.model), config.prompt)
    width = measure_stream(config, tokenizer, 2048, None).generation.max_prompt_length
    assert width in (64, 128, 256)


def test_without_any_prompt_there_is_a_width() -> None:
    settled = with_prompt_length(Config(), MeasuredPrompts([], [], []), prompt_limit(Config(), None), None)
    assert settled.generation.max_prompt_length == 64


def test_no_room_before_the_completion_is_an_error_before_the_prompts_are_read() -> None:
    with pytest.raises(ConfigError, match=r"5000 tokens .* context of 2048 .* lower generation.max_generation_steps"):
        prompt_limit(config_of("generation.max_generation_steps=5000"), 2048)
