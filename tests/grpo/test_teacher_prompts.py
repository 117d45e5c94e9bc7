"""Texts that a teacher is shown: solutions of the group, feedback, and texts cut to the context."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from agent_tunix.distributed.store import check_plain
from agent_tunix.grpo.teacher_prompts import ShownPrompts, TeacherPrompts, Written, describe_failures, find_solutions
from agent_tunix.policy.chat.teacher_template import DEFAULT, TeacherTemplate
from agent_tunix.rewards import EpisodeSummary, Outcome, Sample, Score
from agent_tunix.sampling.sampler import Completions

G = 2


class Letters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_prompts(self, prompts: Sequence[Sequence[str]]) -> list[list[int]]:
        return [self.encode("".join(parts)) for parts in prompts]

    def pad_id(self) -> int:
        return 0


def split(messages: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]) -> list[str]:
    return ["|".join(message["content"] for message in messages)]


def share(make: Callable[[], Written]) -> Written:
    """Refuse, as a run of several processes does, what its other processes could not read."""
    check_plain(written := make())
    return written


def write(
    template: str,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    episode: EpisodeSummary | None = None,
    own: str = "S|Q",
) -> ShownPrompts:
    """Return what the teacher of two completions, of which the first is right, is shown; `own` is the policy's."""
    prompts = TeacherPrompts(
        TeacherTemplate(template),
        Letters(),  # type: ignore[arg-type]
        split,
        lambda text, size: text[:size],
        limit=limit,
        num_generations=G,
        pass_at=1.0,
        share=share,
    )
    asked = ({"role": "system", "content": "S"}, {"role": "user", "content": "Q"})
    samples = [
        Sample(text, "Q", (*asked, {"role": "assistant", "content": text}), columns or {}, episode=episode)
        for text in ("good", "bad")
    ]
    parts = [{"tests": Score(value, detail=f"{value:g} passed")} for value in (1.0, 0.0)]
    scores = [Score(part["tests"].value, parts=part) for part in parts]
    rows = np.array([[ord(letter) for letter in own]] * G)
    completions = Completions(
        rows,
        np.full(G, len(own)),
        np.zeros((G, 4), int),
        np.full(G, 4),
        np.ones(G, bool),
        ["good", "bad"],
        np.zeros((G, 4)),
    )
    return prompts.write(samples, scores, np.array([1.0, 0.0]), completions)


def texts(shown: ShownPrompts) -> list[str]:
    return [
        "".join(map(chr, row[len(row) - length :])) for row, length in zip(shown.tokens, shown.lengths, strict=True)
    ]


def test_a_completion_with_nothing_to_show_keeps_the_prompt_of_the_policy() -> None:
    shown = write("{% if solution %}{{ prompt }} {{ solution }}: {{ feedback }}{% endif %}")
    assert texts(shown) == ["S|Q", "S|Q good: 0 passed"]
    assert shown.taught.tolist() == [False, True]


def test_completions_share_a_prompt_that_depends_on_the_row_alone() -> None:
    shown = write("{{ prompt }} {{ hint }}", {"hint": "H"})
    assert texts(shown) == ["S|Q H"]
    assert shown.taught.tolist() == [True, True]


def test_the_longest_text_is_cut_and_counted() -> None:
    shown = write("{{ prompt }} {{ feedback }} {{ worked_solution }}", {"worked_solution": "w" * 50}, limit=40)
    assert texts(shown)[1] == "S|Q 0 passed " + "w" * 27
    assert shown.num_cut == 2
    assert shown.lengths.max() == 40


def test_a_prompt_that_cannot_be_cut_teaches_nothing() -> None:
    shown = write("{{ row.hint }}{{ response }}", {"hint": "h" * 50}, limit=40)
    assert shown.taught.tolist() == [False, False]


@pytest.mark.parametrize(("own", "is_taught"), [("S|Q", True), ("S tools|Q", False)])
def test_an_episode_whose_tools_nothing_else_knows_teaches_nothing(own: str, is_taught: bool) -> None:
    shown = write("{{ prompt }} {{ hint }}", {"hint": "H"}, episode=EpisodeSummary("finished", 1, 2), own=own)
    assert shown.taught.tolist() == [is_taught] * G
    assert texts(shown) == ["S|Q H" if is_taught else own]


def test_a_row_on_which_the_template_fails_teaches_nothing() -> None:
    assert not write("{{ prompt }} {{ hint }}").taught.any()


def test_the_default_template_shows_nothing_where_nothing_is_known() -> None:
    shown = write(DEFAULT)
    assert shown.taught.tolist() == [False, True]
    assert "good" in texts(shown)[1]
    assert "0 passed" in texts(shown)[1]
    assert "The correct answer is 0." in texts(write(DEFAULT, {"answer": 0}))[0]


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([1.0, 0.0, 0.5], ["", "a", "a"]),
        ([1.0, 1.0, 0.0], ["b", "a", "a"]),
        ([1.0, 1.0, 1.0], ["", "", ""]),
        ([np.nan, np.nan, 1.0], ["", "", ""]),
        ([np.nan, 0.0, 1.0], ["c", "c", ""]),
    ],
)
def test_the_solution_is_another_completion_with_the_highest_total(totals: list[float], expected: list[str]) -> None:
    assert find_solutions([Sample(text) for text in "abc"], np.array(totals), 3) == expected


def test_feedback_leaves_out_what_passed_and_faults_of_rewards() -> None:
    parts = {
        "right": Score(1.0, detail="all passed"),
        "tests": Score(0.5, detail="test 3 failed"),
        "judge": Score.failed(Outcome.ERROR, "no answer"),
    }
    assert describe_failures(Score(0.5, parts=parts), 1.0) == "tests: test 3 failed"
