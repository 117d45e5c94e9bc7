import pytest

from agent_tunix.rewards.answers import extract_choice


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("<answer>B</answer>", "B"),
        ("<answer>(b) Paris</answer>", "B"),
        ("<answer>B. Paris</answer> not A", "B"),
        (r"\boxed{\text{C}}", "C"),
        ("#### D", "D"),
        ("The answer is (B).", "B"),
        ("Answer: **C**", "C"),
        ("I choose option D because", "D"),
        ("A or B? The correct answer is B", "B"),
        ("It must be (C)", "C"),
        ("so C", "C"),
        ("A cat sat", None),
        ("A cat sat. So A.", "A"),
        ("<answer>Paris</answer>", None),
        ("<answer></answer> B", None),
        ("the answer is Berlin", None),
        ("Z", None),
        ("", None),
        (r"\boxed{\textbf{B}}", "B"),
        (r"\boxed{\mathrm{(B)}}", "B"),
        ("<answer>Option B</answer>", "B"),
        ("<answer>The answer is B</answer>", "B"),
        ("<answer>Paris (B)</answer>", "B"),
        ("<answer>{B}</answer>", "B"),
        ("The answer is $B$", "B"),
        ('The answer is "B".', "B"),
        ("<think>The answer is A</think> B", "B"),
        ("<answer>A, B</answer>", None),
        ("<answer>A or B</answer>", None),
        ("<answer>a cat</answer>", None),
        ("The answer is a cat", None),
    ],
)
def test_the_letter_of_a_response(response: str, letter: str | None) -> None:
    assert extract_choice(response) == letter
