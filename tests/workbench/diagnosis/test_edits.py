"""Advice must be such that it can be followed: every edit composes over the configuration of its run."""

import functools

import pytest
from hydra import compose, initialize_config_dir

from agent_tunix.config.checks import check
from agent_tunix.config.compose import find_conf_directory, register_schema, to_typed
from agent_tunix.config.schema import Config
from agent_tunix.overrides import assign, write
from agent_tunix.rewards import resolve_reward
from agent_tunix.workbench.diagnosis import RunContext, diagnose
from agent_tunix.workbench.diagnosis.edits import add_component, change_component
from tests.tiers import in_tiers
from tests.workbench.diagnosis.support import SETTINGS, make_context
from tests.workbench.diagnosis.test_detectors import SICK


@functools.cache
def compose_with(*overrides: str) -> Config:
    register_schema()
    with initialize_config_dir(str(find_conf_directory()), version_base=None):
        return to_typed(compose("config", list(overrides)))


# No key of the configuration mends these.
WITHOUT_EDITS = (
    "always_one",
    "always_the_same",
    "noisy",
    "verifier_errors",
    "calls_never_parse",
    "tool_always_fails (search)",
    "agent_forks",
    "engine_mismatch",
    "engine_context",
)


@pytest.mark.parametrize("name", in_tiers(list(SICK), "component_dominance (long)"))
def test_every_edit_composes_and_gives_a_reward_that_resolves(name: str) -> None:
    rows, spec = SICK[name]
    for key in ("training.reward_function", "reward.components"):
        context = RunContext.from_data(make_context(spec).to_data() | {"reward_key": key})
        written = assign(key, {c.name: c.written for c in context.components})
        (finding,) = diagnose(rows, context)
        assert finding.edits or name in WITHOUT_EDITS
        for edit in finding.edits:
            if key == "reward.components" and not edit.startswith(key):
                continue  # composed already
            config = compose_with(written, edit)
            check(config)
            resolve_reward(config.reward.components or config.training.reward_function)
            assert config != compose_with(written), f"{edit} changes nothing"


def test_an_edit_composes_over_a_reward_given_by_its_name() -> None:
    context = make_context("math")
    edit = add_component(context, "tags", function="format", weight=0.2)
    config = compose_with("training.reward_function=math", edit)
    assert config.training.reward_function == {
        "math": {"function": "math"},
        "tags": {"function": "format", "weight": 0.2},
    }


def test_an_edit_of_a_file_of_components_changes_one_of_them() -> None:
    shipped = compose_with("reward=careful_math").reward.components
    context = RunContext.of(resolve_reward(shipped), written=shipped, reward_key="reward.components", settings=SETTINGS)
    config = compose_with("reward=careful_math", change_component(context, "brevity", requires=None, weight=0.5))
    assert config.reward.components["brevity"]["weight"] == 0.5
    assert [c.requires for c in resolve_reward(config.reward.components).components if c.name == "brevity"] == [{}]
    assert config.reward.components["tags"] == shipped["tags"]


def test_a_new_component_does_not_take_the_name_of_another() -> None:
    context = make_context({"correct": "format"})
    assert add_component(context, "correct", function="math").endswith("correct_2: {function: math}}")


def test_a_value_is_read_back_as_it_was() -> None:
    texts = ["plain", "path/to/file.py:name", "it's", "back\\slash", "ends with \\", "\\'", "a, b: [c] {d} = e"]
    texts += [" spaced ", "", "null", "1e3", "ünï", "grün", "/home/jürgen/run", "/plain/path-1.txt"]
    texts += ['say "no"', '\\"', '\\\\"']
    others = [1e-06, -0.5, 7, True, None, [1, "two", [3.0]], {"a": {"b c": 1, "d:e": "f"}, 0: "zero"}]
    written = {f"key{number}": value for number, value in enumerate([*texts, *others])}
    assert compose_with(assign("training.reward_function", written)).training.reward_function == written


def test_what_no_override_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="an override cannot contain"):
        write({1, 2})
