from agent_tunix.rewards.sample import Outcome, Sample, Score
from agent_tunix.rewards.statistics.reasons import group_reasons
from agent_tunix.workbench.diagnosis import RolloutView
from agent_tunix.workbench.diagnosis.views import earnings_of_dead_groups, most_frequent_reason


def scored(group: int, total: float, **components: float) -> RolloutView:
    return RolloutView(f"1_{group}_0", group, "text", total, components)


def test_reasons_are_grouped_by_exception_and_line() -> None:
    details = [f"KeyError: 'score of {n}' (/x/mine.py:5: raise KeyError(n))" for n in range(4)]
    details += ["returned nan; a reward is finite"] * 5 + ["KeyError: 'a' (/x/mine.py:9: row['a'])"]
    assert group_reasons(details) == [(details[4], 5), (details[0], 4), (details[-1], 1)]


def test_figures_in_a_message_make_no_other_reason() -> None:
    assert group_reasons(["ran 10.1 s", "ran 10.2 s"]) == [("ran 10.1 s", 2)]


def test_a_long_text_is_grouped_by_its_beginning() -> None:
    ((text, count),) = group_reasons(["a: " * 10**5, "a: " * 10**6])  # whole, the search would take minutes
    assert (len(text), count) == (1000, 2)


def test_a_finding_names_the_most_frequent_reason_of_the_total_or_of_a_component() -> None:
    part = Score(None, outcome=Outcome.ERROR, detail="ValueError: no (/x/mine.py:1: f())")
    score = Score(None, outcome=Outcome.ERROR, detail=f"component 'a': {part.detail}", parts={"a": part})
    views = [RolloutView.of(Sample("text"), one) for one in (score, score, Score(1.0))]
    assert most_frequent_reason("")(views) == f"in this step 2 × component 'a': {part.detail}"
    assert most_frequent_reason("a")(views) == f"in this step 2 × {part.detail}"
    assert most_frequent_reason("b")(views) == ""


def test_dead_groups_tell_what_they_earn_and_from_what() -> None:
    dead = [scored(group, 0.3, brevity=1.0, correct=0.0) for group in (0, 0, 1, 1)]
    alive = [scored(2, 0.3, brevity=1.0, correct=0.0), scored(2, 1.3, brevity=1.0, correct=1.0)]
    told = earnings_of_dead_groups([*dead, *alive, scored(3, 0.0, brevity=0.0), scored(3, 0.0, brevity=0.0)])
    assert told == "in this step 2 of 3 such groups earn 0.3 per completion (brevity 1)"
    assert earnings_of_dead_groups(alive) == ""
