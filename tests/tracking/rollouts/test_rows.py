"""Samples and scores as a table and back, to the bit; the documented columns are those of the files."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_tunix.rewards import EpisodeSummary, Outcome, Sample, Score, Term, resolve_reward
from agent_tunix.rewards.sample import LARGEST_VALUE
from agent_tunix.tracking.rollouts import Opaque, ScoringSettings, StoredStep, encoding
from agent_tunix.tracking.rollouts.rows import from_table, to_table
from agent_tunix.tracking.rollouts.schema import COLUMNS, COMPONENT_FIELDS, Column
from tests.rewards.agents import AGENT
from tests.tracking.rollouts.support import assert_same_step, make_samples, make_step, mixture, same

TEXT = st.text(st.characters(exclude_categories=()), max_size=10)  # lone surrogates too
SHOWN = st.text('ab é✓"\\$\n', max_size=6)  # what a reward may show as it is
NAMES = st.text("ab é✓$", max_size=6)
VALUES = st.floats(-LARGEST_VALUE, LARGEST_VALUE)
WEIGHTS = st.floats(allow_nan=False, allow_infinity=False)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3) | st.tuples(inner),
    max_leaves=6,
)
EXTRAS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | SHOWN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3) | st.tuples(inner),
    max_leaves=6,
)
NO_COMPONENTS: st.SearchStrategy[dict[str, float]] = st.just({})
COLUMNS_OF_A_ROW = st.dictionaries(TEXT, ODD, max_size=4)


def scores(components: Any = NO_COMPONENTS, **others: Any) -> st.SearchStrategy[Score]:
    def make(outcome: Outcome, value: float, **fields: Any) -> Score:
        return Score(value=value if outcome is Outcome.SCORED else None, outcome=outcome, **fields)

    return st.builds(
        make,
        st.sampled_from(Outcome),
        VALUES,
        components=components,
        detail=NAMES,
        extras=st.dictionaries(st.just("log") | NAMES, EXTRAS, max_size=3),
        seconds=st.floats(0, 1e6),
        metrics=st.dictionaries(NAMES, VALUES, max_size=2),
        **others,
    )


PARTS = scores(st.dictionaries(NAMES, st.none() | VALUES, max_size=2))
TERMS = st.builds(Term, WEIGHTS, st.none() | VALUES, st.sampled_from(Outcome), st.booleans(), NAMES)
NESTED_PARTS = scores(
    st.dictionaries(NAMES, VALUES, max_size=2),
    parts=st.dictionaries(NAMES, PARTS, max_size=2),
    terms=st.dictionaries(NAMES, TERMS, max_size=2),
)


@st.composite
def totals(draw: st.DrawFn) -> Score:
    """As a mixture gives them, of some components not computed."""
    terms = draw(st.dictionaries(NAMES, TERMS, max_size=4))
    parts = {name: draw(PARTS | NESTED_PARTS) for name in terms if draw(st.booleans())}
    total = draw(scores())
    return dataclasses.replace(
        total,
        components={name: parts[name].value if name in parts else None for name in terms},
        extras={name: part.extras for name, part in parts.items() if part.extras},
        parts=parts,
        terms=terms,
        metrics={},
    )


@st.composite
def steps(draw: st.DrawFn) -> StoredStep:
    count = draw(st.integers(1, 4))
    step = draw(st.integers(1, 10**6))
    samples = []
    for row in range(count):
        response = draw(TEXT)
        last = draw(st.sampled_from([{"role": "assistant", "content": response}, {"role": "tool", "content": "other"}]))
        samples.append(
            Sample(
                response=response,
                prompt=draw(TEXT),
                messages=draw(st.sampled_from([(), (last,), ({"role": "user", "content": draw(ODD)}, last)])),
                columns=draw(COLUMNS_OF_A_ROW),
                format=draw(TEXT),
                step=step,
                max_steps=draw(st.integers(0, 10**6)),
                group_id=row // 2,
                rollout_id=draw(TEXT),
                num_tokens=draw(st.integers(0, 10**6)),
                ended=draw(st.booleans()),
                tokens=tuple(draw(st.lists(st.integers(0, 2**31 - 1), max_size=4))),
            )
        )
    numbers = st.lists(st.floats(width=32), min_size=count, max_size=count)
    return StoredStep(
        step=step,
        samples=samples,
        scores=draw(st.lists(totals(), min_size=count, max_size=count)),
        advantages=np.array(draw(numbers), np.float32),
        logprobs=np.array(draw(numbers), np.float32),
        settings=draw(
            st.builds(ScoringSettings, st.integers(1, 64), st.text(), st.text(), st.text("0123456789abcdef"))
        ),
        groups_in_step=draw(st.integers(1, 100)),
    )


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(steps())
def test_a_step_comes_back_to_the_bit(stored: StoredStep) -> None:
    assert_same_step(from_table(to_table(stored), stored.settings), stored)


def test_the_calls_of_an_agent_come_back() -> None:
    episode = EpisodeSummary("finished", 1, 1, agent=AGENT)
    settings = ScoringSettings(1, "group", "exclude", "0123")
    one = np.ones(1, np.float32)
    stored = StoredStep(1, [Sample("4", episode=episode)], [Score(1.0)], one, one, settings, 1)
    assert from_table(to_table(stored), settings).samples[0].episode == episode


@pytest.mark.parametrize("scaling", ["group", "batch", "none", "component"])
@pytest.mark.parametrize("on_failure", ["exclude", "zero"])
def test_what_is_stored_gives_the_totals_and_advantages_again(scaling: str, on_failure: str) -> None:
    """Through gates, transforms, failures and components that do not apply."""

    def flaky(response: str, answer: str) -> float:
        if response.endswith("3</answer>"):
            raise RuntimeError("no")
        return len(response) / 3

    written = {
        "correct": "math",
        "scaled": {"function": "conciseness", "weight": 1 / 3, "transform": [{"clip": [0, 0.7]}]},
        "gated": {"function": "format", "weight": -0.1, "requires": {"correct": 1.0}},
        "routed": {"function": "conciseness", "weight": 0.3, "when": {"answer": ["2", "3"]}},
        "flaky": {"function": flaky, "weight": 0.7},
    }
    mix = resolve_reward(written, working_directory=Path.cwd(), on_failure=on_failure)
    samples = make_samples(2, groups=6, generations=4)
    scored = mix.score(samples)
    assert {score.outcome for score in scored} == {Outcome.SCORED, Outcome.ERROR}
    advantages = mix.advantages(scored, 4, scaling).astype(np.float32)
    stored = dataclasses.replace(make_step(2, samples=samples, scores=scored), advantages=advantages)
    found = from_table(to_table(stored), stored.settings)
    parts = {
        component.name: [score.parts.get(component.name) for score in found.scores] for component in mix.components
    }
    again = mix.score(found.samples, known=parts)
    assert same([score.value for score in again], [score.value for score in scored])
    assert same([dict(score.terms) for score in again], [dict(score.terms) for score in scored])
    for source in (again, found.scores):
        assert same(mix.advantages(source, 4, scaling).astype(np.float32), advantages)
    assert same(found.advantages, advantages)


def test_the_table_has_the_columns_of_the_schema() -> None:
    table = to_table(make_step(1))
    assert table.column_names == [column.name for column in COLUMNS]
    assert [field.name for field in table.schema.field("components").type.value_type] == [
        field.name for field in COMPONENT_FIELDS
    ]
    for column in COLUMNS:
        assert table.schema.field(column.name).nullable == column.nullable
        assert column.nullable or table[column.name].null_count == 0


def test_what_a_reward_logged_stands_with_its_rollout() -> None:
    part = Score(1.0, extras={"log": "INFO looked it up\n", "source": "page 3"}, metrics={"hits": 2.0})
    total = Score(
        1.0, {"search": 1.0}, extras={"search": part.extras}, parts={"search": part}, terms={"search": Term(1.0, 1.0)}
    )
    stored = make_step(1, samples=make_samples(1, groups=1, generations=1), scores=[total])
    row = to_table(stored).to_pylist()[0]
    assert row["logged"] == '{"search":{"text":"INFO looked it up\\n","metrics":{"hits":2.0}}}'
    assert row["extras"] == '{"search":{"source":"page 3"}}'
    assert_same_step(from_table(to_table(stored), stored.settings), stored)


def test_a_lone_surrogate_is_shown_as_a_question_and_kept_as_it_was() -> None:
    samples = [dataclasses.replace(sample, response="so \ud800 it is") for sample in make_samples(1)]
    stored = make_step(1, samples=samples)
    row = to_table(stored).to_pylist()[0]
    assert row["response"] == "so � it is"
    assert row["exact"] == '{"response":"so \\ud800 it is"}'
    assert_same_step(from_table(to_table(stored), stored.settings), stored)


def test_a_column_that_cannot_be_stored_is_told_from_one_that_was() -> None:
    samples = [dataclasses.replace(sample, columns={"picture": object()}) for sample in make_samples(1)]
    found = from_table(
        to_table(make_step(1, samples=samples, scores=mixture().score(make_samples(1)))), make_step(1).settings
    )
    assert isinstance(found.samples[0].columns["picture"], Opaque)


PAGE = Path(__file__).parents[3] / "docs" / "report.md"


@pytest.mark.parametrize("columns", [COLUMNS, COMPONENT_FIELDS], ids=["columns", "components"])
def test_the_page_has_the_table_of_the_schema(columns: tuple[Column, ...]) -> None:
    kinds = [f"{column.type}, or null" if column.nullable else column.type for column in columns]
    rows = [f"| `{column.name}` | {kind} | {column.help} |" for column, kind in zip(columns, kinds, strict=True)]
    assert "\n".join(["| Column | Type | Meaning |", "| --- | --- | --- |", *rows, ""]) in PAGE.read_text(
        encoding="utf-8"
    )


def test_the_page_has_every_type_of_the_json_columns() -> None:
    values = [math.nan, 2**10_000, (1,), {1}, b"x", np.float32(1), np.zeros(1), {1: 2}, object()]
    tags = {json.loads(encoding.encode(value))["$type"] for value in values}
    table = PAGE.read_text(encoding="utf-8").partition("### JSON columns")[2]
    assert len(tags) > 6
    assert [name for name in tags if f"`{name}`" not in table] == []
