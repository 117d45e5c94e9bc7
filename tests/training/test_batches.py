"""The prompts of each step, from memory and from a stream."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.data.step_batches import Batches, LoadedBatches, PrefetchedBatches, StreamedBatches
from agent_tunix.errors import DataError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.training.components import load_batches
from tests.raising import raises


def write(path: Path, count: int, **columns: Any) -> None:
    lines = (json.dumps({"question": f"What is {n} + 1?", "answer": str(n + 1), **columns}) for n in range(count))
    path.write_text("".join(line + "\n" for line in lines))


def streamed(path: Path, num_batches: int = 30, **data: Any) -> Config:
    data = {"path": str(path), "streaming": True, "shuffle_buffer": 16, **data}
    return Config(data=DataConfig(**data), training=TrainingConfig(batch_size=4, num_batches=num_batches))


def problems(batches: Batches, *steps: int) -> list[list[str]]:
    return [list(batches.batch(step).prompts) for step in steps]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    write(tmp_path / "rows.jsonl", 50)
    return tmp_path / "rows.jsonl"


def test_a_stream_gives_every_row_once_a_pass(rows: Path, tokenizer: Tokenizer) -> None:
    batches = StreamedBatches(streamed(rows), tokenizer)
    drawn = [problem for batch in problems(batches, *range(1, 26)) for problem in batch]
    assert len(set(drawn[:50])) == len(set(drawn[50:])) == 50
    assert drawn[:50] != drawn[50:]


def test_a_stream_can_be_asked_for_steps_ahead_and_long_past(rows: Path, tokenizer: Tokenizer) -> None:
    unbroken = StreamedBatches(streamed(rows, 80), tokenizer)
    whole = problems(unbroken, *range(1, 81))
    batches = StreamedBatches(streamed(rows, 80), tokenizer)
    for step in (25, 1, 4, 2, 80, 3, 60, 1, 79):
        assert problems(batches, step) == [whole[step - 1]]
        assert batches.fingerprint(step) == unbroken.fingerprint(step)


def test_without_shuffling_a_stream_keeps_the_order_of_its_rows(rows: Path, tokenizer: Tokenizer) -> None:
    (first, second) = problems(StreamedBatches(streamed(rows, shuffle=False), tokenizer), 1, 2)
    assert first + second == [f"What is {n} + 1?" for n in range(8)]


def test_the_seed_decides_the_order_of_a_stream(rows: Path, tokenizer: Tokenizer) -> None:
    config, other = streamed(rows), streamed(rows)
    other.seed = 1
    assert problems(StreamedBatches(config, tokenizer), 1) != problems(StreamedBatches(other, tokenizer), 1)


def test_a_stream_has_what_is_held_in_memory(rows: Path, tokenizer: Tokenizer) -> None:
    config = streamed(rows)
    of_stream = StreamedBatches(config, tokenizer).batch(1)
    config.data.streaming, config.training.train_fraction = False, 0.9
    _, loaded, _ = load_batches(config, tokenizer)
    in_memory = {
        batch.prompts[0]: batch for step in range(1, loaded.num_steps + 1) for batch in split(loaded.batch(step))
    }
    compared = [batch for batch in split(of_stream) if batch.prompts[0] in in_memory]
    assert compared
    for batch in compared:
        assert batch == in_memory[batch.prompts[0]]


def split(batch: PromptBatch) -> list[PromptBatch]:
    return [
        PromptBatch([prompt], [batch.messages[n]], [batch.token_ids[n]], [batch.columns[n]])
        for n, prompt in enumerate(batch.prompts)
    ]


def test_a_mixture_of_streams_takes_turns_by_weight(tmp_path: Path, rows: Path, tokenizer: Tokenizer) -> None:
    write(tmp_path / "few.jsonl", 3)
    config = streamed(rows, mixture={"many": {"weight": 3}, "few": {"path": str(tmp_path / "few.jsonl")}})
    batches = StreamedBatches(config, tokenizer)
    whole = [batches.batch(step) for step in range(1, 31)]
    assert all([columns["data_source"] for columns in batch.columns].count("few") == 1 for batch in whole)
    assert StreamedBatches(config, tokenizer).batch(21) == whole[20]


def test_the_held_out_part_of_a_stream_is_not_drawn(rows: Path, tokenizer: Tokenizer) -> None:
    config = streamed(rows)
    config.training.train_fraction = 0.7
    _, batches, held_out = load_batches(config, tokenizer)
    drawn = {problem for batch in problems(batches, *range(1, 31)) for problem in batch}
    asked = {example.prompt for example in held_out.examples}
    assert not drawn & asked
    assert len(drawn | asked) == 50


def test_a_stream_leaves_out_long_prompts(rows: Path, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    long = {"question": "Count to 3. " * 50, "answer": "3"}
    rows.write_text(rows.read_text() + (json.dumps(long) + "\n") * 600 + "{\n")
    config = streamed(rows, num_batches=20)
    config.data.shuffle_buffer = 1
    config.generation.max_prompt_length = 64
    with caplog.at_level(logging.WARNING):
        drawn = {p for batch in problems(StreamedBatches(config, tokenizer), *range(1, 21)) for p in batch}
    assert len(drawn) == 50
    assert "in the first pass: 600 × prompt over 64 tokens" in caplog.text
    assert "1 × not JSON (line 651" in caplog.text


def test_a_stream_without_prompts_that_fit_is_refused(rows: Path, tokenizer: Tokenizer) -> None:
    config = streamed(rows)
    config.generation.max_prompt_length = 8
    for over_long, said in (("refuse", "but 50 of 50 have more"), ("drop", "50 × prompt over 8 tokens")):
        config.generation.over_long = over_long
        batches = StreamedBatches(config, tokenizer)
        for _ in range(2):  # the warm-up of a run asks before its first step does
            with pytest.raises(DataError) as caught:
                batches.batch(1)
            assert said in str(caught.value)


@pytest.mark.parametrize("step", [0, 31])
def test_step_outside_a_stream_is_an_error(rows: Path, step: int, tokenizer: Tokenizer) -> None:
    with pytest.raises(IndexError, match="outside 1 to 30"):
        StreamedBatches(streamed(rows), tokenizer).batch(step)


def test_the_fingerprint_of_a_stream_tells_rows_that_were_drawn(rows: Path, tokenizer: Tokenizer) -> None:
    before = StreamedBatches(streamed(rows, shuffle=False), tokenizer)
    was = [before.fingerprint(step) for step in (0, 1, 5, 6)]
    rows.write_text(rows.read_text().replace('"answer": "21"', '"answer": "22"'))
    after = StreamedBatches(streamed(rows, shuffle=False), tokenizer)
    now = [after.fingerprint(step) for step in (0, 1, 5, 6)]
    assert [one == other for one, other in zip(was, now, strict=True)] == [True, True, True, False]


@pytest.mark.parametrize("change", [{"level": 2}, {"question": [{"role": "system", "content": "Multiply."}]}])
def test_the_fingerprint_of_rows_tells_changes_of_all_that_is_used(
    rows: Path, change: dict[str, Any], tokenizer: Tokenizer
) -> None:
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 and 2"}]
    row = {"question": asked, "answer": "4", "level": 1}
    changed = {**row, **change}
    if change.get("question"):
        changed["question"] = [*change["question"], asked[1]]
    digests = []
    for one in (row, row, changed):
        rows.write_text(json.dumps(one) + "\n")
        digests.append(StreamedBatches(streamed(rows, shuffle=False), tokenizer).fingerprint(1))
    assert digests[0] == digests[1] != digests[2]


def test_the_fingerprint_of_rows_in_memory_is_that_of_all(rows: Path, tokenizer: Tokenizer) -> None:
    config = streamed(rows)
    config.data.streaming, config.training.train_fraction = False, 0.9
    _, batches, _ = load_batches(config, tokenizer)
    assert isinstance(batches, LoadedBatches)
    assert batches.fingerprint(1) == batches.fingerprint(20)


# Reading ahead.


class Slow:
    """Batches that say when they are made, and wait until they may be."""

    num_steps = 3

    def __init__(self) -> None:
        self.made: list[int] = []
        self.may_go_on = threading.Event()
        self.threads: set[int] = set()

    def batch(self, step: int) -> PromptBatch:
        if step == 2:
            self.may_go_on.wait()
        if step == 3:
            raise DataError("rows.jsonl ends in the middle of a row", code="broken_off")
        self.made.append(step)
        self.threads.add(threading.get_ident())
        return PromptBatch([f"of step {step}"], [], [], [])

    def fingerprint(self, step: int) -> str:
        self.threads.add(threading.get_ident())
        return f"{step}"


def test_the_next_batch_is_made_while_a_step_is_taken_and_in_one_thread() -> None:
    """Batches need not be safe for threads."""
    slow = Slow()
    ahead = PrefetchedBatches(slow)
    assert ahead.batch(1).prompts == ["of step 1"]
    slow.may_go_on.set()
    assert ahead.fingerprint(1) == "1"  # which comes after it
    assert slow.made == [1, 2]
    assert ahead.batch(2).prompts == ["of step 2"]
    assert slow.made == [1, 2]
    assert len(slow.threads) == 1
    assert threading.get_ident() not in slow.threads
    with raises(DataError, "broken_off"):  # at its own step
        ahead.batch(3)


def test_batches_in_any_order_are_those_that_were_asked_for(rows: Path, tokenizer: Tokenizer) -> None:
    plain = problems(StreamedBatches(streamed(rows, 12), tokenizer), 1, 2, 3, 3, 2, 9, 10, 1, 12)
    ahead = PrefetchedBatches(StreamedBatches(streamed(rows, 12), tokenizer))
    assert problems(ahead, 1, 2, 3, 3, 2, 9, 10, 1, 12) == plain
