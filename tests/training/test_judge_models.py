"""Judges whose model the run samples: the scores of an endpoint, memory, shared weights, and runs on a mesh."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from flax import nnx

from agent_tunix.config.schema import Config, PromptConfig
from agent_tunix.data.prompts import PromptEncoder
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.planning.memory import plan_memory
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.model import load_policy
from agent_tunix.rewards import Outcome, Sample, resolve_reward
from agent_tunix.rewards.judges import load_judge
from agent_tunix.rewards.judges.grading import RubricJudge
from agent_tunix.runs.trust import reward_parts
from agent_tunix.runs.weights.judge_models import judge_configs, load_judges, local_judges, refuse_local_judges
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.tracking import read_rows
from agent_tunix.tracking.stored_run import StoredRun
from tests.eight_devices import run_on_eight_devices
from tests.raising import raises
from tests.rewards.judges.endpoint_server import Answer, EndpointServer, Request, chat
from tests.training.judge_runs import JUDGE, judge_by_number
from tests.training.support import QUESTIONS

SAMPLES = [Sample(f"It is {number}.", prompt=question) for question in QUESTIONS for number in range(3)]


@pytest.fixture
def server(sampler: Sampler, tokenizer: Tokenizer) -> Iterator[EndpointServer]:
    """An endpoint with the tiny model, which it samples greedily, one request at a time."""
    encoder = PromptEncoder(tokenizer, PromptConfig())

    def reply(request: Request) -> Answer:
        tokens = encoder.encode(request.body["messages"])
        sampling = SamplingParams(request.body["max_tokens"], greedy=True)
        done = sampler.sample(
            [tokens], derive_key(0, Use.GENERATION), sampling, num_generations=1, max_prompt_length=1024
        )
        return Answer(body=chat(done.texts[0], finish_reason="stop" if done.ended[0] else "length"))

    server = EndpointServer()
    server.always = reply
    yield server
    server.close()


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Any:
    """A judge that lives as long as the module, so that the others share its model and its programs."""
    return judge().local_model


def judge(**args: Any) -> Any:
    return load_judge("judge").bind("number", {**JUDGE, **args})


@pytest.mark.parametrize("question", ["number", pytest.param("rubric", marks=pytest.mark.slow)])
def test_scores_are_those_of_the_same_model_behind_an_endpoint(
    question: str, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, longest = SAMPLES[:3], 1024
    if question == "number":
        monkeypatch.setattr(RubricJudge, "_judge_one", judge_by_number)
        samples, longest = SAMPLES, JUDGE["max_prompt_tokens"]
    here = judge(max_prompt_tokens=longest).score(samples)
    there = judge(max_prompt_tokens=None, base_url=server.url).score(samples)
    assert [(one.value, one.outcome, one.detail) for one in here] == [
        (one.value, one.outcome, one.detail) for one in there
    ]
    if question == "number":
        assert len({one.value for one in here}) > 2


def test_a_prompt_that_is_too_long_is_an_error_that_names_the_key() -> None:
    (score,) = judge().score(SAMPLES[:1])
    assert score.outcome is Outcome.ERROR
    assert "max_prompt_tokens" in score.detail


def test_drawn_replies_are_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RubricJudge, "_judge_one", judge_by_number)
    greedy, one, again = ([score.value for score in judge(temperature=t).score(SAMPLES[:8])] for t in (0.0, 1.5, 1.5))
    assert one == again != greedy


def test_weights_of_the_frozen_base_are_shared(mesh: jax.sharding.Mesh) -> None:
    config = Config()
    config.model.lora_rank = 2
    policy = load_policy(EMBEDDED_MODEL, config.model, mesh)
    one = judge(quantization=None)
    load_judges([one], config, policy, mesh)
    model = one.local_model.model._sampler.sampler.policy
    own, shared = (set(map(id, jax.tree.leaves(nnx.state(module)))) for module in (policy, model))
    assert len(shared - own) == len(jax.tree.leaves(nnx.state(model, nnx.LoRAParam))) < len(shared)
    plan = plan_memory(read_architecture(EMBEDDED_MODEL), config, 4, judges=judge_configs([one]))
    assert plan.judge == 0 < plan.judging


def test_a_plan_has_each_model_once_in_its_storage() -> None:
    architecture = read_architecture(EMBEDDED_MODEL)

    def weights(*judges: Any) -> int:
        return plan_memory(architecture, Config(), 4, judges=judge_configs(judges)).judge

    assert weights(judge(), judge(max_tokens=64)) == weights(judge()) > weights(judge(quantization="nf4")) > 0
    assert weights(judge(), judge(dtype="bfloat16")) == 1.5 * weights(judge())
    plan = plan_memory(architecture, Config(), 4, judges=judge_configs([judge(max_prompt_tokens=4096)]))
    assert plan.total == plan.held + plan.judging


def test_a_model_without_a_chat_template_is_refused_before_its_weights_are_read(
    tmp_path: Path, mesh: jax.sharding.Mesh
) -> None:
    model = shutil.copytree(EMBEDDED_MODEL, tmp_path / "model", ignore=shutil.ignore_patterns("chat_template*"))
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    config = Config()
    with raises(ModelError, "invalid_chat_template"):
        load_judges([judge(model=str(model))], config, load_policy(EMBEDDED_MODEL, config.model, mesh), mesh)


def test_several_processes_are_refused_by_name() -> None:
    mixture = resolve_reward({"tone": {"function": "judge", "args": JUDGE}}, working_directory=Path.cwd())
    assert [one.name for one in local_judges(mixture)] == ["tone"]
    refuse_local_judges(mixture, 1)
    with raises(ConfigError, "invalid_judge", "'tone'"):
        refuse_local_judges(mixture, 2)


def test_a_run_of_others_that_samples_its_judge_names_no_endpoint() -> None:
    config = Config()
    config.training.reward_function = {"tone": {"function": "judge", "args": {**JUDGE, "base_url": None}}}
    assert reward_parts(config, Path.cwd()) == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The directory of all runs, and what they loaded and compiled."""
    directory = tmp_path_factory.mktemp("runs")
    return directory, json.loads(run_on_eight_devices("tests.training.judge_runs", directory))


@pytest.mark.slow
def test_runs_on_eight_devices(runs: tuple[Path, dict[str, Any]]) -> None:
    directory, report = runs
    assert report == {"programs": 1, "loaded": []}
    rows = {
        name: [
            {key: value for key, value in row.items() if not key.startswith(("time/", "throughput/"))}
            for row in read_rows(directory / name / "metrics.jsonl")
        ]
        for name in ("whole", "resumed", "alone")
    }
    assert rows["resumed"] == rows["whole"]
    assert rows["alone"][-1]["rewards/total/mean"] == pytest.approx(rows["whole"][0]["rewards/total/mean"])
    steps = [StoredRun(directory / name).rollouts.read_step(3) for name in ("whole", "resumed")]
    assert steps[0].advantages.tolist() == steps[1].advantages.tolist()
