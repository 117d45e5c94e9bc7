"""Each sickness in a made-up run, and beside it the healthy run that looks most like it."""

import dataclasses
from typing import Any

import pytest

from agent_tunix.workbench.diagnosis import NAMES, Severity, Watch, diagnose
from tests.workbench.diagnosis.support import (
    MIXTURE,
    Row,
    found,
    gated,
    make_context,
    make_row,
    make_rows,
    mixed,
    scheduled,
    steady,
)


def constant(value: float) -> list[Row]:
    levels = {f"rewards__total__{leaf}": value for leaf in ("min", "max")}
    return steady(6, value, rewards__total__std=0.0, rewards__dead_groups=1.0, **levels)


def clustered(low: float, high: float, distinct: int) -> list[Row]:
    levels = {"rewards__total__min": low, "rewards__total__max": high, "rewards__total__distinct": distinct}
    return steady(8, 0.81, **levels)


def longer(step: int) -> Row:
    levels = {"rewards__total__length_correlation": 0.99, "rewards__total__distinct": 30}
    if step == 10:
        levels |= {"eval__accuracy": 0.3}
    return make_row(step, 0.3 + 0.04 * step, completions__length_mean=10.0 + step, **levels)


def paid_calls(step: int) -> Row:
    levels = {"tools__reward_correlation": 0.95, "tools__calls_mean": 0.2 * step, "turns__mean": 2.0}
    return mixed(step, 0.3 + 0.04 * step, rewards__oracle__mean=0.4, rewards__correct__mean=0.1, **levels)


def form_only(step: int) -> Row:
    means = {"correct": 0.1, "oracle": 0.1, "tags": 0.05 * step}
    levels = {f"rewards__{name}__mean": mean for name, mean in means.items()}
    return mixed(step, 0.3 + 0.02 * step, rewards__tags__weight=0.4, **levels)


def dominated(step: int) -> Row:
    leaves = {"mean": 100.0, "std": 40.0, "weight": 1.0, "advantage_share": 0.99}
    levels = {f"rewards__long__{leaf}": value for leaf, value in leaves.items()}
    return mixed(step, rewards__correct__advantage_share=0.01, **levels)


def sampled_elsewhere(step: int, **metrics: Any) -> Row:
    healthy = {"tokens_per_s": 900.0, "context_cut": 0}
    engine = {f"engine__{name}": value for name, value in healthy.items()}
    return make_row(step, **engine | {"policy__sampler_mismatch_kl": 1e-3} | metrics)


# name → (rows of a sick run, its reward)
SICK: dict[str, tuple[list[Row], Any]] = {
    "always_zero": (constant(0.0), "math"),
    "always_one": (constant(1.0), "math"),
    "always_the_same": (constant(0.25), "math"),
    "sparse": (steady(8, 0.02, rewards__dead_groups=0.8, rewards__groups__all_highest=0.0), "math"),
    "clustered": (clustered(0.8, 0.82, 20), "math"),
    "noisy": (steady(5, completions__duplicate_score_std=0.3), "math"),
    "collapsed_to_one_output": (
        make_rows(6, lambda step: make_row(step, completions__distinct_share=0.3 if step < 4 else 1 / 128)),
        "math",
    ),
    "length_hacking": (make_rows(12, longer), "response_length"),
    "format_only_learning (tags)": (make_rows(12, form_only), MIXTURE),
    "oracle_down": (
        make_rows(12, lambda step: mixed(step, 0.3 + 0.05 * step, rewards__oracle__mean=1.0 - 0.05 * step)),
        MIXTURE,
    ),
    "component_dominance (long)": (make_rows(5, dominated), {"correct": "math", "long": "soft_overlong"}),
    "gate_never_opens (brief)": (
        make_rows(6, lambda step: mixed(step, rewards__correct__max=0.5, rewards__brief__gate_shut=128)),
        gated(1.0),
    ),
    "schedule_over_too_soon (tags)": (make_rows(8, lambda step: mixed(step, 0.4)), scheduled(6)),
    "dead_groups_growing": (
        make_rows(15, lambda step: make_row(step, rewards__dead_groups=min(0.8, 0.06 * step))),
        "math",
    ),
    "dead_groups": (steady(6, rewards__dead_groups=0.95), "math"),
    "no_progress": (steady(50), "math"),
    "kl_runaway": (make_rows(6, lambda step: make_row(step, policy__kl=0.3 * step)), "math"),
    "sampler_masked": (steady(4, policy__sampler_masked_share=0.7), "math"),
    "reward_collapse": (
        make_rows(8, lambda step: make_row(step, 0.4 if step < 4 else 0.02, rewards__dead_groups=0.7)),
        "math",
    ),
    "entropy_collapse": (make_rows(8, lambda step: make_row(step, policy__entropy=0.3 if step < 4 else 0.01)), "math"),
    "truncation": (steady(4, completions__clipped_share=0.6), "math"),
    "calls_in_another_form": (
        steady(6, tools__calls_mean=0.0, turns__mean=1.0, tools__unread_calls=20, unread_calls__qwen_xml=20),
        "math",
    ),
    "tool_never_called": (steady(6, tools__calls_mean=0.0, turns__mean=1.0), "math"),
    "calls_never_parse": (steady(2, tools__calls_mean=1.0, tools__parse_errors=128, turns__mean=2.0), "math"),
    "tool_always_fails (search)": (
        steady(2, tools__calls_mean=1.0, tools__search__calls=128, tools__search__errors=128, turns__mean=2.0),
        "math",
    ),
    "episode_limits": (steady(3, turns__limit_share=0.5, stop_reasons__max_turns=0.5, turns__mean=4.0), "math"),
    "agent_forks": (
        steady(
            3, agent__calls_mean=3.0, agent__forked_share=0.8, agent__fork_causes__dropped=90, tools__calls_mean=0.0
        ),
        "math",
    ),
    "engine_mismatch": (
        make_rows(6, lambda step: sampled_elsewhere(step, policy__sampler_mismatch_kl=1e-3 if step < 4 else 0.1)),
        "math",
    ),
    "engine_context": (make_rows(2, lambda step: sampled_elsewhere(step, engine__context_cut=3)), "math"),
    "calls_rewarded": (make_rows(12, paid_calls), MIXTURE),
    "verifier_errors": (steady(3, rewards__outcomes__scored=64, rewards__outcomes__error=64), "math"),
}


@pytest.mark.parametrize("name", SICK)
def test_each_sickness_is_found_by_name_and_nothing_else_is(name: str) -> None:
    rows, spec = SICK[name]
    assert found(rows, make_context(spec)) == [name]


def test_groups_that_earlier_weights_sampled_are_no_mismatch_of_the_engine() -> None:
    replaying = {"policy__sampler_mismatch_kl": 0.1, "replay__groups": 2}
    rows = make_rows(6, lambda step: sampled_elsewhere(step, **(replaying if step > 3 else {})))
    assert found(rows, make_context("math")) == []


def test_every_finding_there_is_has_a_sick_run() -> None:
    assert {title.partition(" ")[0] for title in SICK} == set(NAMES)


def test_a_fork_that_can_be_avoided_is_named_before_one_that_may_be_intended() -> None:
    forks = {"agent__forked_share": 0.9, "agent__fork_causes__branch": 200}
    intended = diagnose(steady(3, **forks), make_context())
    avoidable = diagnose(steady(3, **forks, agent__fork_causes__rewritten=10), make_context())
    assert [(one.name, one.severity) for one in intended] == [("agent_forks", Severity.INFO)]
    assert [(one.name, one.severity) for one in avoidable] == [("agent_forks", Severity.WARNING)]
    assert avoidable[0].evidence["agent/fork_causes/rewritten so far"] == 20
    assert found(steady(3, agent__forked_share=0.2, agent__fork_causes__rewritten=10)) == []


def rightly_longer(step: int) -> Row:
    levels = {"rewards__total__length_correlation": 0.85, "completions__length_mean": 10.0 + step / 2}
    return mixed(step, 0.02 * step, **levels)


def rare_success(step: int) -> Row:
    correct = {"rewards__correct__std": 0.14, "rewards__correct__advantage_share": 0.04}
    return mixed(step, rewards__tags__advantage_share=0.96, rewards__tags__weight=1.0, **correct)


def undefined(step: int) -> Row:
    return {"step": step} | {name: None for name in make_row(step) if name != "step"}


# What learning looks like, to which a careless threshold would object: rows, and the run's reward.
HEALTHY: dict[str, tuple[list[Row], Any]] = {
    "nothing happens": (steady(40), "math"),
    "all is learned, so that in the end everything earns 1": (
        make_rows(40, lambda step: make_row(step, min(1.0, step / 20), rewards__total__min=0.0 if step < 20 else 1.0)),
        "math",
    ),
    "three batches happen to be all wrong after others were not": (
        make_rows(8, lambda step: make_row(step, 0.1, rewards__total__max=1.0 if step < 4 else 0.0)),
        "math",
    ),
    "right answers are longer than wrong ones, and become more": (make_rows(40, rightly_longer), MIXTURE),
    "one response a prompt, each its own": (steady(20, 0.95, completions__distinct_share=16 / 128), "math"),
    "few possible answers from the start": (steady(20, completions__distinct_share=2 / 128), "math"),
    "sure because it knows": (
        make_rows(20, lambda step: make_row(step, min(0.95, 0.05 * step), policy__entropy=0.3 * 0.8**step)),
        "math",
    ),
    "the greatest weight explains most of the advantage, as it is meant to": (
        make_rows(20, lambda step: mixed(step, rewards__correct__advantage_share=0.97)),
        MIXTURE,
    ),
    "a schedule takes away most of the total": (
        make_rows(
            9, lambda step: mixed(step, 0.1 if step > 3 else 1.0, rewards__tags__weight=max(0.0, 1.0 - step / 5))
        ),
        scheduled(40),
    ),
    "a rare success explains little, but not by its scale": (
        make_rows(20, rare_success),
        {"correct": "math", "tags": "format"},
    ),
    "the form is learned first, and answers with it": (
        make_rows(20, lambda step: mixed(step, min(1.0, 0.05 * step))),
        MIXTURE,
    ),
    "a schedule that ends after something was learned": (
        make_rows(12, lambda step: mixed(step, 0.1 * step)),
        scheduled(10),
    ),
    "a gate that opens now and then": (
        make_rows(9, lambda step: mixed(step, rewards__brief__gate_shut=127 if step == 3 else 128)),
        gated(1.0),
    ),
    "an endpoint that fails once in a while": (
        steady(9, rewards__outcomes__scored=126, rewards__outcomes__timeout=2),
        "math",
    ),
    "a reward of two values, near each other": (clustered(0.99, 1.0, 2), "math"),
    "one outburst of KL": (make_rows(9, lambda step: make_row(step, policy__kl=0.9 if step == 4 else 0.02)), "math"),
    "slow progress, within the scatter of steps": (
        make_rows(60, lambda step: make_row(step, 0.3 + 0.002 * step + 0.02 * (step % 2))),
        "math",
    ),
    "not better than nearly perfect": (steady(60, 0.9), "math"),
    "a total that only falls with a weight": (
        make_rows(60, lambda step: mixed(step, rewards__tags__weight=1.0 - step / 80)),
        scheduled(80),
    ),
    "one prompt again and again, and solved": (
        steady(9, 1.0, completions__distinct_share=1 / 128, completions__distinct_prompts=1),
        "math",
    ),
    "undefined everywhere": (make_rows(9, undefined), "math"),
    "failed episodes": (
        steady(3, rewards__total__mean=None, completions__distinct_share=1 / 128, rewards__outcomes__scored=128),
        "math",
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_gives_no_finding(name: str) -> None:
    rows, spec = HEALTHY[name]
    assert found(rows, make_context(spec)) == []


def test_dead_groups_that_are_all_right_are_only_told_of() -> None:
    rows = make_rows(
        20, lambda step: make_row(step, rewards__dead_groups=0.05 * step, rewards__groups__all_highest=0.05 * step)
    )
    (finding,) = diagnose(rows, make_context())
    assert (finding.name, finding.severity) == ("dead_groups_growing", Severity.INFO)


def test_dead_groups_whose_answers_are_right_but_could_be_shorter_are_only_told_of() -> None:
    levels = {"rewards__total__max": 0.97, "rewards__groups__all_highest": 0.0}
    rows = make_rows(20, lambda step: make_row(step, 0.95, rewards__dead_groups=0.05 * step, **levels))
    (finding,) = diagnose(rows, make_context())
    assert (finding.name, finding.severity, finding.edits) == ("dead_groups_growing", Severity.INFO, ())


def test_a_hack_is_found_whatever_part_of_the_declared_range_it_uses() -> None:
    def shorter(step: int) -> Row:
        spread = {"rewards__total__min": 0.02, "rewards__total__max": 0.06, "rewards__total__std": 0.01}
        levels = {"rewards__total__length_correlation": -0.99, "rewards__total__distinct": 30, "eval__accuracy": 0.0}
        return make_row(step, 0.03 + 0.001 * step, completions__length_mean=20.0 - step, **spread, **levels)

    context = make_context("response_length")
    assert context.range == (0.0, 1.0)
    assert "length_hacking" in found(make_rows(12, shorter), context)


def program_task(weight: object = 1.0) -> dict[str, Any]:
    """A reward in which `execution` decides, `brief` waits for it, and the weight of the form is scheduled."""
    schedule = {"from": 0.5, "to": 0.1, "steps": [1, 6]}
    return {
        "tags": {"function": "format", "weight": schedule},
        "execution": {"function": "code_tests", "weight": weight},
        "brief": {"function": "conciseness", "weight": 0.2, "requires": {"execution": 1.0}},
    }


def nothing_runs(step: int, **metrics: Any) -> Row:
    """A step of eight completions whose totals differ from those of the step before by a weight alone."""
    total = 0.5 - 0.05 * step
    levels = {"min": total, "max": total, "std": 0.0}
    parts = {f"rewards__total__{leaf}": value for leaf, value in levels.items()}
    for name, value in (("tags", 1.0), ("execution", 0.0)):
        parts |= {f"rewards__{name}__{leaf}": value for leaf in ("min", "max", "mean")}
    counts = {"rewards__outcomes__scored": 8, "rewards__brief__gate_shut": 8, "rewards__dead_groups": 1.0}
    return make_row(step, total, **(parts | counts | {"completions__clipped_share": 1.0} | metrics))


def test_a_component_that_decides_and_never_earned_comes_first() -> None:
    first, *others = diagnose(make_rows(8, nothing_runs), make_context(program_task()))
    assert (first.title, first.severity) == ("always_zero (execution)", Severity.ERROR)
    assert "execution earned 0 in every completion of 8 steps" in first.summary
    assert "no group taught anything" in first.summary
    assert "the gate of brief, which requires execution ≥ 1, never opened" in first.summary
    assert {"truncation", "schedule_over_too_soon"} <= {finding.name for finding in others}


def test_a_gate_that_keeps_the_deciding_component_shut_is_named() -> None:
    task = program_task() | {"execution": {"function": "code_tests", "requires": {"tags": 1.0}}}

    def never_run(step: int) -> Row:
        none = {f"rewards__execution__{leaf}": None for leaf in ("min", "max", "mean")}
        varied = {"rewards__tags__min": 0.0, "rewards__tags__max": 0.5, "rewards__execution__gate_shut": 8}
        return nothing_runs(step, **none, **varied)

    first = diagnose(make_rows(8, never_run), make_context(task))[0]
    assert first.title == "always_zero (execution)"
    assert "its gate, which requires tags ≥ 1, never opened" in first.summary


def test_a_deciding_component_that_never_earned_is_told_of_while_others_teach() -> None:
    rows = make_rows(12, lambda step: nothing_runs(step, rewards__dead_groups=0.5, completions__clipped_share=0.0))
    findings = {finding.title: finding for finding in diagnose(rows, make_context(program_task()))}
    assert findings["always_zero (execution)"].severity is Severity.WARNING


def test_a_component_that_earned_once_is_not_reported() -> None:
    rows = make_rows(12, lambda step: nothing_runs(step, rewards__execution__max=1.0 if step == 1 else 0.0))
    assert not any("execution" in title for title in found(rows, make_context(program_task())))


def test_a_form_that_never_varies_is_no_finding() -> None:
    levels = {f"rewards__tags__{leaf}": 1.0 for leaf in ("min", "max", "mean")}
    rows = make_rows(12, lambda step: mixed(step, **levels, rewards__correct__min=0.0))
    assert found(rows, make_context(MIXTURE)) == []


def test_one_component_whose_schedule_moves_the_total_is_judged_by_its_own_values() -> None:
    spec = {"style": {"function": "code_tests", "weight": {"from": 1.0, "to": 0.5, "steps": [1, 30]}}}
    rows = make_rows(
        4,
        lambda step: make_row(
            step,
            rewards__total__min=1.0 - step / 60,
            rewards__total__max=1.0 - step / 60,
            rewards__style__min=1.0,
            rewards__style__max=1.0,
            rewards__dead_groups=1.0,
        ),
    )
    assert found(rows, make_context(spec)) == ["always_one (style)"]


def fading(step: int, **metrics: Any) -> Row:
    """A step whose total falls with the weight of the form alone."""
    weight = max(0.0, 1.0 - step / 6)
    return mixed(
        step,
        0.1 + 0.8 * weight,
        rewards__tags__weight=weight,
        rewards__tags__mean=0.8,
        rewards__correct__mean=0.1,
        **metrics,
    )


def test_a_total_that_falls_with_a_weight_does_not_excuse_a_limit() -> None:
    findings = diagnose(
        make_rows(12, lambda step: fading(step, completions__clipped_share=0.8 if step > 6 else 0.0)),
        make_context(scheduled(6), num_steps=6),
    )
    (cut,) = (finding for finding in findings if finding.name == "truncation")
    assert cut.edits[0].startswith("generation.max_generation_steps=")


def test_a_total_that_rises_with_a_weight_has_learned_nothing() -> None:
    weight = {"from": 0.0, "to": 1.0, "steps": [1, 6]}
    context = make_context({"correct": "math", "tags": {"function": "format", "weight": weight}})
    rows = make_rows(
        8,
        lambda step: mixed(
            step,
            0.1 + 0.8 * min(1.0, step / 6),
            rewards__tags__weight=min(1.0, step / 6),
            rewards__tags__mean=0.8,
            rewards__correct__mean=0.1,
        ),
    )
    assert "schedule_over_too_soon (tags)" in found(rows, context)


def test_a_gate_above_the_declared_range_is_told_of_at_once() -> None:
    rows = make_rows(1, lambda step: mixed(step, rewards__brief__gate_shut=128))
    (finding,) = diagnose(rows, make_context(gated(2.0)))
    assert (finding.step, finding.title) == (1, "gate_never_opens (brief)")


def test_a_schedule_within_the_warmup_is_told_of_at_once() -> None:
    (finding,) = diagnose(make_rows(1, mixed), make_context(scheduled(6), warmup_steps=10))
    assert finding.step == 1


def test_a_component_that_only_watches_is_named_when_it_fails() -> None:
    rows = make_rows(3, lambda step: mixed(step, rewards__oracle__outcomes__error=64))
    assert found(rows, make_context(MIXTURE)) == ["verifier_errors (oracle)"]


def test_of_a_small_batch_more_steps_are_wanted() -> None:
    levels = {f"rewards__total__{leaf}": 0.0 for leaf in ("min", "max", "std")} | {"rewards__outcomes__scored": 8}
    assert found(steady(11, 0.0, **levels)) == []
    assert found(steady(12, 0.0, **levels)) == ["always_zero"]


def test_dead_groups_without_one_that_is_all_right_are_not_called_learned() -> None:
    # The total has risen by far more than completions differed at the start.
    rows = make_rows(
        15,
        lambda step: make_row(
            step, 0.05 * step, rewards__dead_groups=min(0.9, 0.07 * step), rewards__groups__all_highest=0.0
        ),
    )
    (finding,) = diagnose(rows, make_context())
    assert finding.severity is Severity.WARNING
    assert "learned" not in finding.summary


def test_a_total_that_never_was_above_its_least_value_has_not_collapsed() -> None:
    rows = steady(8, 1.0, rewards__total__min=1.0, rewards__total__max=1.0, rewards__total__std=0.0)
    context = make_context()
    assert "reward_collapse" not in found(rows, dataclasses.replace(context, range=None))


LUCKY = (0.016, 0.008, 0.023, 0.031, 0.055, 0.063, 0.0, 0.039, 0.109, 0.055, 0.023, 0.023, 0.031, 0.008, 0.023, 0.023)
LEARNED_ALL = {f"rewards__total__{leaf}": 1.0 for leaf in ("min", "max")} | {"rewards__total__std": 0.0}


@pytest.mark.parametrize(
    ("rows", "declared", "before"),
    [
        (make_rows(len(LUCKY), lambda step: make_row(step, LUCKY[step - 1])), True, None),
        (make_rows(9, lambda step: make_row(step, 0.05 + 0.1 * min(step, 6) if step < 7 else 0.02)), True, 0.45),
        (make_rows(9, lambda step: make_row(step, 0.2 * step, **(LEARNED_ALL if step > 4 else {}))), False, None),
        # Of 16 completions, none is right by chance in three steps in a row.
        (steady(3, 0.125, rewards__outcomes__scored=16) + steady(3, 0.0, rewards__outcomes__scored=16)[1:], True, None),
    ],
    ids=["a lucky batch", "lost after it was learned", "all learned, without a declared range", "small batches"],
)
def test_a_collapse_is_a_fall_from_what_was_held(rows: list[Row], declared: bool, before: float | None) -> None:
    context = make_context() if declared else dataclasses.replace(make_context(), range=None)
    findings = [one for one in diagnose(rows, context) if one.name == "reward_collapse"]
    assert [one.evidence["total_before"] for one in findings] == ([] if before is None else [pytest.approx(before)])


@pytest.mark.parametrize(
    ("beta", "edit"), [(50.0, "grpo.beta=0.02"), (0.02, "optimizer.learning_rate=0.0003")], ids=["held", "slow"]
)
def test_what_helps_a_run_without_progress_depends_on_its_penalty(beta: float, edit: str) -> None:
    (finding,) = diagnose(steady(50), make_context(grpo__beta=beta))
    assert (finding.severity, finding.edits) == (Severity.INFO, (edit,))


def test_a_schedule_is_told_of_once_and_never_shortened() -> None:
    watch = Watch(make_context(scheduled(6), num_steps=400, warmup_steps=350))
    told = [finding.name for row in make_rows(300, mixed) for finding in watch.observe(row["step"], row)]
    assert told.count("schedule_over_too_soon") == 1
    # It ends as late as advice would have it, or later.
    late = make_context(scheduled(35), num_steps=40, warmup_steps=0)
    assert "schedule_over_too_soon (tags)" not in found(make_rows(40, lambda step: mixed(step, 0.4)), late)


def test_a_supervised_start_has_no_schedule() -> None:
    rows = [{"step": step, "sft/loss": 1.0} for step in range(1, 10)]
    assert found(rows, make_context(scheduled(6), warmup_steps=10)) == []


@pytest.mark.parametrize("later", [{}, {"eval/accuracy": 0.9}])
def test_length_hacking_waits_for_an_evaluation_and_believes_it(later: Row) -> None:
    rows = [*make_rows(9, longer), *([{**longer(10), **later}] if later else [])]
    assert found(rows, make_context("response_length")) == []
