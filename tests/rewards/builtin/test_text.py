import pytest

from agent_tunix.rewards.answers import extract_choice

# Letter → responses that choose it.
CHOICES: dict[str | None, list[str]] = {
    "B": [
        *("<answer>B</answer>", "<answer>(b) Paris</answer>", "<answer>B. Paris</answer> not A", "The answer is (B)."),
        *("A or B? The correct answer is B", r"\boxed{\textbf{B}}", r"\boxed{\mathrm{(B)}}"),
        *("<answer>Option B</answer>", "<answer>The answer is B</answer>", "<answer>Paris (B)</answer>"),
        *("<answer>{B}</answer>", "The answer is $B$", 'The answer is "B".', "<think>The answer is A</think> B"),
    ],
    "C": [r"\boxed{\text{C}}", "Answer: **C**", "It must be (C)", "so C"],
    "D": ["#### D", "I choose option D because"],
    None: [
        *("A cat sat", "<answer>Paris</answer>", "<answer></answer> B", "the answer is Berlin", "Z", ""),
        *("<answer>A, B</answer>", "<answer>A or B</answer>", "<answer>a cat</answer>", "The answer is a cat"),
    ],
    "A": ["A cat sat. So A."],
}


@pytest.mark.parametrize(
    ("response", "letter"), [(response, letter) for letter, responses in CHOICES.items() for response in responses]
)
def test_the_letter_of_a_response(response: str, letter: str | None) -> None:
    assert extract_choice(response) == letter
