"""Which completions of a step are shown, and that their text does nothing."""

import html
import re

import markdown
import numpy as np
import pytest

from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.tracking.samples import LONGEST_TEXT, choose_samples, to_markdown


def chosen(values: list[float | None], num_samples: int) -> list[tuple[str, str]]:
    samples = [Sample("x", rollout_id=str(index)) for index in range(len(values))]
    scores = [Score(value) if value is not None else Score.failed(Outcome.ERROR, "broke") for value in values]
    shown = choose_samples(samples, scores, np.zeros(len(values)), num_samples)
    return [(sample.rank, sample.rollout_id) for sample in shown]


@pytest.mark.parametrize(
    ("values", "num_samples", "expected"),
    [
        ([0.0, 3.0, 1.0, 2.0], 2, [("best", "1"), ("worst", "0")]),
        ([0.0, 3.0, 1.0, 2.0], 3, [("best", "1"), ("best", "3"), ("worst", "0")]),
        ([1.0, 1.0, 1.0, 1.0], 2, [("best", "0"), ("worst", "1")]),  # the earliest of equals, none twice
        ([1.0, None, None], 4, [("best", "0"), ("unscored", "1"), ("unscored", "2")]),
        ([None, 2.0, 1.0, None], 2, [("best", "1"), ("worst", "2")]),
        ([None, None], 1, [("unscored", "0")]),
        ([1.0, 2.0], 0, []),
        ([], 4, []),
    ],
)
def test_the_best_and_the_worst_are_shown_and_failures_where_there_is_room(
    values: list[float | None], num_samples: int, expected: list[tuple[str, str]]
) -> None:
    assert chosen(values, num_samples) == expected


def render(response: str, name: str = "math") -> str:
    """What a page makes of a completion with this text; the Markdown is read as TensorBoard reads it."""
    sample = Sample(response, prompt=response, columns={"answer": response})
    score = Score(1.0, components={name: 1.0}, detail=response)
    text = to_markdown(choose_samples([sample], [score], np.zeros(1), 1))
    page: str = markdown.markdown(text, extensions=["markdown.extensions.tables", "markdown.extensions.fenced_code"])
    return page


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "![](http://127.0.0.1/pixel.png)",
        "[click](javascript:alert(1))",
        "<img src=http://127.0.0.1/x>",
        "</code></pre><b>out</b>",
        "```\n<b>fence</b>\n```",
        "\n\nparagraph\n\n<b>x</b>\n\n# heading",
        "a\rb\r\n<b>c</b>\x0b<i>d</i>\u2028<u>e</u>",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "\x02wzxhzdk:0\x03 \x1b[31mred",
        "&lt;b&gt; *stars* _lines_ `ticks`",
        "",
    ],
)
def test_text_of_a_model_does_nothing_on_a_page(hostile: str) -> None:
    for page in (render(hostile), render("4", name=hostile)):
        assert set(re.findall(r"<[^>]*>", page)) == {"<pre>", "</pre>", "<code>", "</code>"}
        assert page.count("<pre>") == 1


def test_text_is_shown_as_it_is() -> None:
    assert "*stars* &lt;b&gt; <i>" in html.unescape(render("*stars* &lt;b&gt; <i>"))


def test_long_text_is_cut() -> None:
    (shown,) = choose_samples([Sample("x" * 9000)], [Score(1.0)], np.zeros(1), 1)
    assert (len(shown.response), shown.response[-1]) == (LONGEST_TEXT, "…")


def test_what_no_file_can_hold_is_replaced() -> None:
    (shown,) = choose_samples([Sample("a\ud800b")], [Score(1.0)], np.zeros(1), 1)
    assert shown.response == "a?b"
