"""Any mixture against an oracle of plain loops, which goes by the rules and not by how mixtures are built."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score
from agent_tunix.rewards.advantages import SCALINGS
from agent_tunix.rewards.conventions import PlainReward
from agent_tunix.rewards.mixture.routes import ALL_ROWS, Route
from agent_tunix.rewards.transforms import Clip, Map, Normalize, Rank, Transform

# What a component says: a number, "n/a", or a failure.
Said = float | str
FAILED = {"error": Outcome.ERROR, "timeout": Outcome.TIMEOUT, "bad_reference": Outcome.BAD_REFERENCE}
NUMBERS = st.one_of(st.floats(-100, 100), st.sampled_from([0.0, 0.5, 1.0]))
SAID: st.SearchStrategy[Said] = st.one_of(NUMBERS, NUMBERS, st.sampled_from(["n/a", *FAILED]))
TRANSFORMS = st.sampled_from(["clip", "normalize", "rank", "map"])
TABLE = {0.0: 2.0, 0.5: -1.0, 1.0: 0.25}
MADE: dict[str, Transform] = {
    "clip": Clip(-0.5, 0.75),
    "normalize": Normalize(0.4, 0.3),
    "rank": Rank(),
    "map": Map(TABLE),
}


@dataclass(frozen=True)
class Case:
    """A mixture, as numbers, and what its components say: table[b][c]."""

    weights: list[float]
    requires: list[dict[int, float]]
    transforms: list[list[str]]
    routed: list[bool]
    table: list[list[Said]]
    applies: list[bool]
    size: int

    def mixture(self, on_failure: str = "exclude") -> Mixture:
        return Mixture(
            [
                Component(
                    f"c{c}",
                    PlainReward(saying(f"c{c}"), f"c{c}"),
                    weight=self.weights[c],
                    requires={f"c{other}": least for other, least in self.requires[c].items()},
                    transforms=tuple(MADE[name] for name in self.transforms[c]),
                    route=Route({"kind": ("routed",)}) if self.routed[c] else ALL_ROWS,
                )
                for c in range(len(self.weights))
            ],
            on_failure=on_failure,
        )

    def samples(self) -> list[Sample]:
        return [
            Sample(
                "x",
                columns={f"c{c}": said for c, said in enumerate(row)}
                | {"kind": "routed" if self.applies[b // self.size] else "other"},
                group_id=b // self.size,
            )
            for b, row in enumerate(self.table)
        ]


def saying(name: str) -> Any:
    def reward(metadata: dict[str, Any], response: str) -> Score | float | None:
        said = metadata[name]
        if said in FAILED:
            return Score.failed(FAILED[said], "told to")
        return None if said == "n/a" else float(said)

    return reward


@st.composite
def cases(draw: st.DrawFn) -> Case:
    number, size, groups = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 3))
    weights = draw(st.lists(st.one_of(st.floats(-10, 10), st.just(0.0)), min_size=number, max_size=number))
    weights[0] = weights[0] or 1.0
    # A component may require any that stand after it, so that no circle arises; the mixture must sort that out.
    requires = [
        draw(st.dictionaries(st.integers(c + 1, number - 1), st.sampled_from([0.0, 0.5, 1.0]), max_size=2))
        if c + 1 < number
        else {}
        for c in range(number)
    ]
    rows = st.lists(SAID, min_size=number, max_size=number)
    return Case(
        weights,
        requires,
        [draw(st.lists(TRANSFORMS, max_size=2)) for _ in range(number)],
        [draw(st.sampled_from([False, False, True])) for _ in range(number)],
        draw(st.lists(rows, min_size=size * groups, max_size=size * groups)),
        [draw(st.booleans()) for _ in range(groups)],
        size,
    )


def oracle_status(case: Case, b: int, c: int) -> str:
    """open, shut, n/a, or failed, for one component on one completion."""
    if case.routed[c] and not case.applies[b // case.size]:
        return "n/a"
    met = []
    for other, least in case.requires[c].items():
        status = oracle_status(case, b, other)
        said = case.table[b][other]
        if status != "open":
            met.append({"shut": "shut", "n/a": "n/a", "failed": "failed"}[status])
        elif isinstance(said, str):
            met.append("n/a" if said == "n/a" else "failed")
        else:
            met.append("open" if said >= least else "shut")
    return next((status for status in ("shut", "failed", "n/a") if status in met), "open")


def oracle_values(case: Case, c: int) -> list[float | str]:
    """The values that a component is weighed with: numbers, "n/a" or "failed", before the group's mean is put in."""
    values: list[float | str] = []
    for b, row in enumerate(case.table):
        status = oracle_status(case, b, c)
        said = row[c]
        if status == "open":
            values.append(said if not isinstance(said, str) else "n/a" if said == "n/a" else "failed")
        else:
            values.append("shut" if status == "shut" else status)
    for name in case.transforms[c]:
        before = list(values)
        for b, value in enumerate(before):
            if isinstance(value, str):
                continue
            start = b // case.size * case.size
            if name == "clip":
                values[b] = min(max(value, -0.5), 0.75)
            elif name == "normalize":
                values[b] = min(max((value - 0.4) / 0.3, -3.0), 3.0)
            elif name == "map":
                values[b] = next((image for key, image in TABLE.items() if math.isclose(key, value)), "failed")
            else:
                others = [v for v in before[start : start + case.size] if not isinstance(v, str)]
                places = [place for place, v in enumerate(sorted(others)) if v == value]
                values[b] = np.mean(places).item() / (len(others) - 1) if len(others) > 1 else 0.5
    return [0.0 if value == "shut" else value for value in values]


def oracle(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Totals, and what each component is weighed with, NaN for an unscored completion."""
    used = [c for c, weight in enumerate(case.weights) if weight != 0]
    columns = {c: oracle_values(case, c) for c in used}
    values = np.zeros((len(used), len(case.table)))
    totals = np.zeros(len(case.table))
    for b in range(len(case.table)):
        start = b // case.size * case.size
        for row, c in enumerate(used):
            value = columns[c][b]
            if value == "n/a":
                siblings = [v for v in columns[c][start : start + case.size] if not isinstance(v, str)]
                value = (siblings[0] if len(set(siblings)) == 1 else np.mean(siblings).item()) if siblings else 0.0
            values[row, b] = np.nan if value == "failed" else value
        if all(columns[c][b] == "n/a" for c in used):
            values[:, b] = np.nan
        totals[b] = sum(case.weights[c] * values[row, b] for row, c in enumerate(used))
        values[:, b] = np.nan if np.isnan(totals[b]) else values[:, b]
    return totals, values


def oracle_advantages(case: Case, scaling: str) -> NDArray[np.float64]:
    totals, values = oracle(case)
    weights = [weight for weight in case.weights if weight != 0]
    epsilon = 1e-6
    result = np.zeros(len(totals))
    groups = [np.arange(start, start + case.size) for start in range(0, len(totals), case.size)]
    groups = [group[~np.isnan(totals[group])] for group in groups]
    everyone = np.concatenate(groups) if groups else np.array([], dtype=int)
    for group in groups:
        if scaling == "component":
            for weight, row in zip(weights, values, strict=True):
                if len(group) > 1 and np.ptp(row[group]) > 0:
                    result[group] += weight * (row[group] - row[group].mean()) / (row[group].std(ddof=1) + epsilon)
        elif scaling == "leave_one_out" and len(group) > 1 and np.ptp(totals[group]) > 0:
            for member in group:
                result[member] = totals[member] - totals[group[group != member]].mean()
        elif len(group) > 1 and np.ptp(totals[group]) > 0:
            spread = {"group": group, "batch": everyone}.get(scaling)
            divisor = 1.0 if spread is None else totals[spread].std(ddof=1) + epsilon
            divisor = np.abs(totals[group]).mean() + epsilon if scaling == "mean" else divisor
            result[group] = (totals[group] - totals[group].mean()) / divisor
    if scaling in ("component", "batch_centred") and len(everyone) > 1:
        result[everyone] /= result[everyone].std(ddof=1) + epsilon
    return result


# With what the first component says: it passes, fails, does not apply, or shuts the gates of the others.
CHAIN = Case(
    weights=[-0.5, 0.3, 2.0, 0.0],
    requires=[{1: 0.5}, {2: 0.5, 3: 0.5}, {}, {}],
    transforms=[["rank"], [], [], []],
    routed=[False, False, False, True],
    table=[[4.0, 1.0, said, other] for said in (1.0, "error", "n/a", 0.0) for other in (1.0, "timeout", "n/a", 0.0)],
    applies=[True] * 4,
    size=4,
)


@given(cases())
@example(CHAIN)
@example(replace(CHAIN, applies=[False] * 8, size=2))
def test_totals_equal_the_oracles(case: Case) -> None:
    mixture = case.mixture()
    totals, values = oracle(case)
    scores = mixture.score(case.samples())
    np.testing.assert_allclose(mixture.totals(scores), totals, rtol=1e-9, atol=1e-9)
    used = [f"c{c}" for c, weight in enumerate(case.weights) if weight != 0]
    for b, score in enumerate(scores):
        if score.value is not None:
            actual = [score.terms[name].value for name in used]
            np.testing.assert_allclose(np.array(actual, dtype=np.float64), values[:, b], rtol=1e-9, atol=1e-9)


@given(cases())
@example(CHAIN)
def test_advantages_equal_the_oracles(case: Case) -> None:
    mixture = case.mixture()
    scores = mixture.score(case.samples())
    for scaling in SCALINGS:
        actual = mixture.advantages(scores, case.size, scaling)
        # Where totals differ by rounding alone, ε decides how much of it is seen; compare above that.
        np.testing.assert_allclose(actual, oracle_advantages(case, scaling), rtol=1e-5, atol=1e-5, err_msg=scaling)


@given(cases(), st.sampled_from(["exclude", "zero"]))
def test_advantages_of_a_group_sum_to_zero_over_its_scored_members(case: Case, on_failure: str) -> None:
    mixture = case.mixture(on_failure)
    scores = mixture.score(case.samples())
    for scaling in SCALINGS:
        advantages = mixture.advantages(scores, case.size, scaling)
        assert np.isfinite(advantages).all()
        assert (advantages[np.isnan(mixture.totals(scores))] == 0).all()
        np.testing.assert_allclose(advantages.reshape(-1, case.size).sum(axis=1), 0.0, atol=1e-6)


@given(st.data(), cases())
def test_permuting_completions_permutes_scores(data: st.DataObject, case: Case) -> None:
    order = data.draw(st.permutations(range(len(case.table))))
    mixture, rows = case.mixture(), case.samples()
    straight = mixture.totals(mixture.score(rows))
    permuted = mixture.totals(mixture.score([rows[index] for index in order]))
    np.testing.assert_array_equal(permuted, straight[np.array(order, dtype=int)])


@given(data=st.data(), case=cases())
def test_permuting_a_group_permutes_its_advantages(data: st.DataObject, case: Case) -> None:
    groups = len(case.table) // case.size
    order = np.concatenate(
        [group * case.size + np.array(data.draw(st.permutations(range(case.size)))) for group in range(groups)]
        or [np.array([], dtype=int)]
    )
    mixture, rows = case.mixture(), case.samples()
    scores, permuted = mixture.score(rows), mixture.score([rows[index] for index in order])
    for scaling in SCALINGS:
        straight = mixture.advantages(scores, case.size, scaling)
        np.testing.assert_allclose(
            mixture.advantages(permuted, case.size, scaling), straight[order], rtol=1e-6, atol=1e-6
        )


@given(cases())
@example(CHAIN)
def test_stored_parts_give_the_same_totals_and_advantages_to_the_last_bit(case: Case) -> None:
    mixture, rows = case.mixture(), case.samples()
    scores = mixture.score(rows)
    parts = {component.name: [score.parts.get(component.name) for score in scores] for component in mixture.components}
    again = mixture.score(rows, known=parts)
    assert again == scores
    assert mixture.totals(again).tobytes() == mixture.totals(scores).tobytes()
    for scaling in SCALINGS:
        one, other = (mixture.advantages(of, case.size, scaling) for of in (again, scores))
        assert one.tobytes() == other.tobytes()
