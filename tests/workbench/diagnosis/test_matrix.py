"""Several sicknesses in one recorded run, and what their messages claim and advise."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_tunix.workbench.diagnosis import Finding, diagnose
from tests.workbench.diagnosis.support import MIXTURE, Row, gated, make_context, make_row, mixed, names, scheduled


@dataclass(frozen=True)
class Recorded:
    """A recorded run.

    Attributes:
        row: Row of a step.
        titles: Findings, the most severe first.
        reward: The reward.
        steps: Number of steps.
        settings: Settings of the run, with `__` for the dot.
        first: Row of the evaluation before training.
    """

    row: Callable[[int], Row]
    titles: tuple[str, ...]
    reward: Any = "math"
    steps: int = 12
    settings: dict[str, Any] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=lambda: {"eval/accuracy": 0.3, "eval/num_problems": 200})

    def findings(self) -> list[Finding]:
        rows = [{"step": 0, **self.first}, *(self.row(step) for step in range(1, self.steps + 1))]
        return diagnose(rows, make_context(self.reward, **self.settings))


NO_MATHEMATICS = {"eval/num_problems": 200, "eval/rewards/total/mean": 0.2}
OWN_MEASURE = {"evaluation__correct": "support.py:keywords"}
FAILING = {"rewards__outcomes__scored": 64, "rewards__outcomes__error": 64}


def falls(step: int) -> float:
    return 0.5 if step <= 3 else 0.02


def constant(value: float, **metrics: Any) -> Callable[[int], Row]:
    levels = {f"rewards__total__{leaf}": value for leaf in ("min", "max")}
    return lambda step: make_row(step, value, rewards__total__std=0.0, rewards__dead_groups=1.0, **levels, **metrics)


def dominated(step: int, **metrics: Any) -> Row:
    leaves = {"mean": 100.0, "std": 40.0, "weight": 1.0, "advantage_share": 0.99}
    levels = {f"rewards__long__{leaf}": value for leaf, value in leaves.items()}
    return mixed(step, rewards__correct__advantage_share=0.01, **levels, **metrics)


def form_only(step: int, **metrics: Any) -> Row:
    means = {"correct": 0.1, "oracle": 0.1, "tags": 0.05 * step}
    levels = {f"rewards__{name}__mean": mean for name, mean in means.items()}
    return mixed(step, 0.3 + 0.02 * step, rewards__tags__weight=0.4, **levels, **metrics)


DOMINATED = {"correct": "math", "long": "soft_overlong"}
MATRIX: dict[str, Recorded] = {
    "fails half the time, and completions are cut": Recorded(
        lambda step: make_row(step, completions__clipped_share=0.6, **FAILING), ("verifier_errors", "truncation")
    ),
    "failures count as 0": Recorded(
        lambda step: make_row(step, **FAILING), ("verifier_errors",), settings={"rewards__on_failure": "zero"}
    ),
    "cut from the start, and always 0": Recorded(
        constant(0.0, completions__clipped_share=1.0), ("always_zero", "truncation")
    ),
    "the policy runs away, loses its reward and no longer ends": Recorded(
        lambda step: make_row(
            step, falls(step), policy__kl=0.0 if step < 2 else 7.0, completions__clipped_share=0.0 if step < 4 else 1.0
        ),
        ("kl_runaway", "reward_collapse", "truncation"),
    ),
    "the policy loses its reward, and all groups are dead": Recorded(
        lambda step: make_row(step, falls(step), rewards__dead_groups=0.1 if step <= 5 else 1.0, policy__kl=0.0),
        ("reward_collapse", "dead_groups_growing"),
        steps=14,
        settings={"grpo__beta": 0.0},
    ),
    "collapsed to one text that earns nothing": Recorded(
        lambda step: make_row(
            step,
            falls(step),
            completions__distinct_share=0.3 if step <= 3 else 1 / 128,
            policy__entropy=0.3 if step <= 3 else 0.001,
        ),
        ("collapsed_to_one_output", "reward_collapse", "entropy_collapse"),
    ),
    "one component drowns another, which contradicts itself": Recorded(
        lambda step: dominated(step, completions__duplicate_score_std=0.2),
        ("noisy", "component_dominance (long)"),
        DOMINATED,
    ),
    "drowned although components are scaled alike": Recorded(
        dominated, ("component_dominance (long)",), DOMINATED, settings={"grpo__advantage_scaling": "component"}
    ),
    "a form is learned, and completions are cut": Recorded(
        lambda step: form_only(step, completions__clipped_share=0.5),
        ("truncation", "format_only_learning (tags)"),
        MIXTURE,
    ),
    "a form is learned whose weight is small": Recorded(
        lambda step: (
            form_only(step)
            | {"rewards/total/mean": 0.3 + 0.8 * step, "rewards/tags/weight": 0.2, "rewards/tags/mean": 4.0 * step}
        ),
        ("format_only_learning (tags)",),
        {**MIXTURE, "correct": {"function": "math", "weight": 10.0}},
    ),
    "a gate is shut, and the schedule ends": Recorded(
        lambda step: mixed(step, 0.4, rewards__correct__max=0.5, rewards__brief__gate_shut=128),
        ("gate_never_opens (brief)", "schedule_over_too_soon (tags)"),
        gated(1.0) | {"tags": scheduled(6)["tags"]},
    ),
    "two gates are shut, one above all values": Recorded(
        lambda step: mixed(
            step, 0.4, rewards__correct__max=0.5, rewards__brief__gate_shut=128, rewards__polite__gate_shut=128
        ),
        ("gate_never_opens (polite)", "gate_never_opens (brief)"),
        gated(1.0) | {"polite": {"function": "format", "requires": {"correct": 2.0}}},
    ),
    "hardly ever paid, and a watching component fails": Recorded(
        lambda step: mixed(
            step, 0.02, rewards__dead_groups=0.8, rewards__groups__all_highest=0.0, rewards__oracle__outcomes__error=64
        ),
        ("verifier_errors (oracle)", "sparse"),
        MIXTURE,
    ),
    "hardly ever paid, without a form": Recorded(
        lambda step: make_row(step, 0.02, rewards__dead_groups=0.8, rewards__groups__all_highest=0.0), ("sparse",)
    ),
    "close together, on one text a prompt": Recorded(
        lambda step: make_row(
            step,
            0.81,
            rewards__total__min=0.8,
            rewards__total__max=0.82,
            rewards__total__distinct=20,
            rewards__dead_groups=0.9,
        ),
        ("clustered", "dead_groups"),
    ),
    "close together, and nothing magnifies it": Recorded(
        lambda step: make_row(
            step, 0.81, rewards__total__min=0.8, rewards__total__max=0.82, rewards__total__distinct=20
        ),
        (),
        settings={"grpo__advantage_scaling": "none"},
    ),
    "all is solved from the start": Recorded(constant(1.0), ("always_one",)),
    "a reward of form pays everything, where mathematics is measured": Recorded(
        constant(1.0), ("always_one",), "format"
    ),
    "a reward of form pays everything, on no mathematics": Recorded(
        constant(1.0), ("always_one",), "format", first=NO_MATHEMATICS
    ),
    "a reward of form pays everything, with a measure of the user's": Recorded(
        constant(1.0), ("always_one",), "format", settings=OWN_MEASURE
    ),
    "length is paid for, on no mathematics": Recorded(
        lambda step: make_row(
            step,
            0.3 + 0.04 * step,
            completions__length_mean=10.0 + step,
            rewards__total__length_correlation=0.99,
            rewards__total__distinct=30,
        ),
        ("length_hacking",),
        "response_length",
        first=NO_MATHEMATICS,
    ),
    "the oracle falls while the total rises, and completions are cut later": Recorded(
        lambda step: mixed(
            step,
            0.3 + 0.05 * step,
            rewards__oracle__mean=1.0 - 0.05 * step,
            completions__clipped_share=0.0 if step < 5 else 0.7,
        ),
        ("oracle_down", "truncation"),
        MIXTURE,
    ),
    "dead groups that are all solved, at a low temperature": Recorded(
        lambda step: make_row(step, 0.97, rewards__dead_groups=0.95, rewards__groups__all_highest=0.93),
        ("dead_groups",),
        settings={"generation__temperature": 0.5},
    ),
    "dead groups at a low temperature": Recorded(
        lambda step: make_row(step, 0.5, rewards__dead_groups=0.95, rewards__groups__all_highest=0.1),
        ("dead_groups",),
        settings={"generation__temperature": 0.5},
    ),
    "healthy, without mathematics": Recorded(
        lambda step: make_row(step, min(0.9, 0.3 + 0.05 * step)), (), "format", first=NO_MATHEMATICS
    ),
    "healthy, while a schedule takes the total down and completions grow": Recorded(
        lambda step: mixed(
            step,
            1.0 if step < 4 else 0.45,
            rewards__tags__weight=max(0.0, 1.0 - step / 8),
            completions__length_mean=10.0 + step,
            completions__clipped_share=0.1,
        ),
        (),
        scheduled(40),
    ),
}


@pytest.mark.parametrize("name", MATRIX)
def test_each_sickness_of_several_is_found(name: str) -> None:
    recorded = MATRIX[name]
    assert names(recorded.findings()) == list(recorded.titles)


def finding(name: str, title: str) -> Finding:
    return next(one for one in MATRIX[name].findings() if one.title == title)


def test_what_follows_from_a_fallen_total_is_no_fault_of_limits_or_sampling() -> None:
    for name, title in (
        ("the policy runs away, loses its reward and no longer ends", "truncation"),
        ("the policy loses its reward, and all groups are dead", "dead_groups_growing"),
    ):
        found = finding(name, title)
        assert "fallen" in found.summary
        assert found.edits == ("optimizer.learning_rate=1e-05",)


def test_correct_answers_are_paid_for_by_what_measures_them() -> None:
    begins = "a reward of form pays everything, "
    edits = {
        end: finding(begins + end, "always_one").edits
        for end in ("where mathematics is measured", "on no mathematics", "with a measure of the user's")
    }
    assert "function: math" in edits["where mathematics is measured"][0]
    assert edits["on no mathematics"] == ()
    assert 'function: "support.py:keywords"' in edits["with a measure of the user's"][0]
    assert finding("length is paid for, on no mathematics", "length_hacking").edits[0].count("soft_overlong") == 1
    assert "math" not in " ".join(finding("length is paid for, on no mathematics", "length_hacking").edits)


def test_what_is_there_is_not_advised_again() -> None:
    assert "harder problems" in finding("all is solved from the start", "always_one").summary
    assert "math" not in " ".join(finding("all is solved from the start", "always_one").edits)
    assert finding("hardly ever paid, and a watching component fails", "sparse").edits == ("grpo.num_generations=16",)
    assert len(finding("hardly ever paid, without a form", "sparse").edits) == 2
    drowned = finding("drowned although components are scaled alike", "component_dominance (long)")
    assert not any("advantage_scaling" in edit for edit in drowned.edits)
    assert finding("dead groups that are all solved, at a low temperature", "dead_groups").edits == ()


def test_more_samples_are_advised_where_they_differ_and_more_variety_where_they_do_not() -> None:
    def edits(duplicates: float, **settings: float) -> tuple[str, ...]:
        dead = {"rewards__dead_groups": 0.95, "completions__duplicate_share": duplicates}
        (found,) = Recorded(lambda step: make_row(step, **dead), (), settings=settings).findings()
        return found.edits

    assert edits(0.1) == ("grpo.num_generations=16",)
    assert edits(0.9) == ("generation.temperature=1.2",)
    assert edits(0.1, generation__temperature=0.5) == ("generation.temperature=1.0",)


def test_the_weight_of_a_form_is_never_raised() -> None:
    (edit,) = finding("a form is learned whose weight is small", "format_only_learning (tags)").edits
    assert "tags: {function: format, weight: 0.1}" in edit


def test_failures_that_count_as_0_are_told_as_such() -> None:
    assert "learns to avoid what fails" in finding("failures count as 0", "verifier_errors").summary
    watching = finding("hardly ever paid, and a watching component fails", "verifier_errors (oracle)")
    assert "groups shrink" not in watching.summary
