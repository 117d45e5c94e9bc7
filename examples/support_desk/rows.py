"""Write questions to a support desk to rows/train.jsonl and rows/test.jsonl."""

import json
from pathlib import Path

# What an answer has to name: days and an office. The tiny model of the package writes hardly more than numbers.
TOPICS = {
    "a refund": ["14", "2"],
    "a repair": ["10", "3"],
    "a delivery": ["3", "1"],
    "an exchange": ["30", "2"],
    "an invoice": ["1", "4"],
    "a new password": ["0", "5"],
    "a discount": ["7", "1"],
    "a replacement": ["12", "3"],
}
QUESTIONS = (
    "How do I get {topic}?",
    "Can you help me with {topic}?",
    "Where do I ask for {topic}?",
    "My colleague needs {topic}. How long does it take?",
)


def main() -> None:
    """Write both files."""
    rows = [
        {
            "question": question.format(topic=topic),
            "answer": f"You get {topic} within {days} days; ask in office {office}.",
            "keywords": [days, office],
        }
        for question in QUESTIONS
        for topic, (days, office) in TOPICS.items()
    ]
    Path("rows").mkdir(exist_ok=True)
    for split, chosen in (("train", rows[8:]), ("test", rows[:8])):
        Path("rows", f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))


if __name__ == "__main__":
    main()
