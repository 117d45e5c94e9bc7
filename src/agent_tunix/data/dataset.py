"""Training and evaluation examples of a run."""

import dataclasses
import hashlib
import itertools
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.schema import Config
from agent_tunix.data.draws import read_difficulty
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import REFERENCE_MARK, Example, fit_layout, is_marked, make_example, rename_columns
from agent_tunix.data.sources import Split, read_rows
from agent_tunix.errors import DataError

_LOGGER = logging.getLogger("agent_tunix.data")

ROWS_TO_JUDGE_BY = 100
# Column with the name of the mixture's set that a row comes from.
SET_COLUMN = "data_source"


@dataclass(frozen=True, slots=True)
class LoadedSplit:
    """The usable examples of a split, and a tally of its dropped rows."""

    examples: list[Example]  # examples in source order. A mixture has one set after another
    dropped: Dropped  # Rows left out. In a mixture, each reason starts with the name of its set.
    # Number of examples by set of a mixture; empty without a mixture.
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def describe(self, purpose: str) -> str:
        """Return one line for the log: `98 training examples; dropped of train.jsonl: 2 × empty line (lines 3, 9)`."""
        line = f"{len(self.examples)} {purpose} examples"
        if self.counts:
            line += f" ({', '.join(f'{name} {count}' for name, count in self.counts.items())})"
        if self.dropped.total:
            line += f"; dropped of {self.dropped.origin or 'the source'}: {self.dropped.describe()}"
        return line


class LoadReport(NamedTuple):
    """Training and evaluation splits of a run, with their dropped rows, for the log."""

    train: LoadedSplit
    evaluation: LoadedSplit

    def describe(self) -> str:
        """Return one line for the training examples and one for the evaluation examples."""
        return f"{self.train.describe('training')}\n{self.evaluation.describe('evaluation')}"


def load_examples(config: Config, split: Split) -> LoadedSplit:
    """Load all usable rows of a split, in source order; a mixture has one set after another.

    With `training.test_data_dir`, the test rows of all sets of a mixture come from that path.

    Raises:
        ConfigError: The source does not exist.
        DataError: A file cannot be read, or it has no usable row.
    """
    examples: list[Example] = []
    all_dropped, counts = Dropped(origin="the mixture"), {}
    parts = _parts(config, split)
    for name, part in parts.items():
        dropped = Dropped()
        own = list(iter_examples(part, split, dropped, name))
        if not own:
            raise nothing_left(split, dropped, name)
        if name is None:
            return LoadedSplit(own, dropped)
        examples += own
        counts[name] = len(own)
        all_dropped.absorb(dropped, name)
    return LoadedSplit(examples, all_dropped, counts)


def load_evaluation(config: Config) -> LoadedSplit:
    """Load the evaluation examples: the held-out part of the training rows, or else the test rows.

    The sets of a mixture are interleaved in proportion to their sizes, so that any prefix represents all of them. From
    streamed data only the first `evaluation.num_samples` examples are taken. A run that does not evaluate needs none.

    Raises:
        ConfigError: The source does not exist.
        DataError: A file cannot be read, or it has no usable row.
    """
    if config.evaluation.num_samples == 0 and (config.data.streaming or config.training.train_fraction >= 1.0):
        return LoadedSplit([], Dropped())
    if config.data.streaming:
        return _interleaved(_first_examples(config))
    if config.training.train_fraction < 1.0:
        return _hold_out(config)[1]
    return _interleaved(load_examples(config, "test"))


def load_splits(config: Config) -> tuple[list[Example], list[Example], LoadReport]:
    """Return the training examples, the evaluation examples, and a report of dropped rows.

    With `training.train_fraction` below 1, the training rows are split; otherwise the evaluation uses the test rows.

    Raises:
        ConfigError: The source does not exist.
        DataError: A file cannot be read, or it has no usable row.
    """
    if config.training.train_fraction < 1.0:
        train, evaluation = _hold_out(config)
    else:
        train, evaluation = load_examples(config, "train"), load_evaluation(config)
    return train.examples, evaluation.examples, LoadReport(train, evaluation)


def peek_examples(config: Config) -> dict[str | None, Example]:
    """Return the first usable training row of each set of a mixture, by name; a single set has the key None.

    Evaluation rows are checked too. Reading stops at the first usable row, so unusable data is rejected quickly.

    Raises:
        ConfigError: The source does not exist.
        DataError: A file cannot be read, or it has no usable row.
    """
    one_of_each = dataclasses.replace(
        config.data, num_train=min(config.data.num_train, 1), num_test=min(config.data.num_test, 1)
    )
    small = dataclasses.replace(config, data=one_of_each)
    if config.training.train_fraction >= 1.0 and config.evaluation.num_samples > 0:
        peek_held_out(small)
    return {name: _first_example(part, "train", name) for name, part in _parts(small, "train").items()}


def peek_held_out(config: Config) -> dict[str | None, Example]:
    """Return the first usable row of each set that an evaluation takes rows from; see `peek_examples`."""
    split: Split = "train" if config.training.train_fraction < 1.0 else "test"
    return {name: _first_example(part, split, name) for name, part in _parts(config, split).items()}


def peek_example(config: Config) -> Example:
    """Return the first usable training row; in a mixture, the row of the first set. See `peek_examples`."""
    return next(iter(peek_examples(config).values()))


def iter_examples(config: Config, split: Split, dropped: Dropped, name: str | None = None) -> Iterator[Example]:
    """Yield the usable rows of one dataset as they are read.

    Answers are split at GSM8K's mark `####` if `data.answer_mark` says so. With `auto`, they are split if at least half
    of the answers in the first rows have the mark. Where answers are not split, an answer that contains the mark is
    used unchanged as the reference, and a warning says how many such answers there are.

    Args:
        config: The run's configuration. For one dataset of a mixture, its own settings are already merged into `data`.
        split: Split to read. The column by which a curriculum sorts is required in training rows only.
        dropped: Tally to which dropped rows are added.
        name: Name of the set in a mixture. It becomes the column `data_source`.

    Raises:
        ConfigError: The source does not exist.
        DataError: A file cannot be read.
    """
    rows = read_rows(config, split, dropped)
    first = list(itertools.islice(rows, ROWS_TO_JUDGE_BY))
    data = fit_layout(config.data, first)
    answers = data.columns.get(data.answer_column or "", data.answer_column)
    marked = is_marked(first, answers) if data.answer_mark == "auto" else data.answer_mark == "always"
    warns, whole = data.answer_mark == "auto" and not marked and data.answer_column is not None, 0
    for row in itertools.chain(first, rows):
        try:
            example = make_example(rename_columns(row, data.columns), data, marked=marked)
            whole += warns and REFERENCE_MARK in str(example.columns["answer"])
            if split == "train" and data.curriculum.column is not None:
                read_difficulty(example.columns, data.curriculum)
            yield example if name is None else _named(example, name)
        except RowError as error:
            dropped.add(error.reason, row.number, error.detail)
    if whole:
        _LOGGER.warning(
            "%d %s answers of %s have %s but are taken as complete references, because most of the first %d have "
            "none; set data.answer_mark to decide",
            whole,
            split,
            dropped.origin or "the source",
            REFERENCE_MARK,
            len(first),
        )


def is_held_out(example: Example, config: Config) -> bool:
    """Return True if a streamed training row belongs to the evaluation.

    A hash of its problem and the run's seed decides. About `training.train_fraction` of the distinct problems train,
    and a problem is never in both parts.
    """
    return (
        int.from_bytes(_rank(_problem_of(example, config), config.seed), "big")
        >= config.training.train_fraction * 2**128
    )


def _parts(config: Config, split: Split) -> Mapping[str | None, Config]:
    """Return the configuration of each set by name; a single set has the key None."""
    if split == "test" and config.training.test_data_dir is not None:
        return {None: config}
    return {name: one.config for name, one in data_sets(config).items()} or {None: config}


def _first_example(config: Config, split: Split, name: str | None) -> Example:
    dropped = Dropped()
    for example in iter_examples(config, split, dropped, name):
        return example
    raise nothing_left(split, dropped, name)


def _named(example: Example, name: str) -> Example:
    if example.columns.get(SET_COLUMN, name) != name:
        raise RowError(
            f"column {SET_COLUMN!r} must contain the name of the set, but contains something else",
            f"rename it, for example data.mixture.{name}.columns.origin={SET_COLUMN}",
        )
    return dataclasses.replace(example, columns={**example.columns, SET_COLUMN: name})


COLUMN_ADVICE = (
    "correct them, or set data.prompt_column and data.answer_column; data.answer_column=null if there are no references"
)


def nothing_left(split: Split, dropped: Dropped, name: str | None) -> DataError:
    """Return the error for a set without usable rows; `name` is its name in a mixture."""
    whose = f"{split} rows" if name is None else f"{split} rows of data.mixture.{name}"
    origin = dropped.origin or "the source"
    if not dropped.total:
        return DataError(f"the {whose} must contain at least one row, but {origin} is empty; add rows", code="no_rows")
    return DataError(
        f"the {whose} must contain at least one usable row, but none of the {dropped.total} of {origin} is usable: "
        f"{dropped.describe()}; {COLUMN_ADVICE}",
        code="no_rows",
    )


def _hold_out(config: Config) -> tuple[LoadedSplit, LoadedSplit]:
    """Split the training rows in two; a hash of each distinct problem and the run's seed decides.

    A problem is never in both parts. Reordering the rows or adding a few does not move the others.
    """
    fraction = config.training.train_fraction
    split = load_examples(config, "train")
    of_rows = [_problem_of(example, config) for example in split.examples]
    problems = set(of_rows)
    if len(problems) < 2:
        reason = f", since {split.dropped.total} rows were dropped: {split.dropped.describe()}"
        raise DataError(
            "training.train_fraction < 1 requires at least 2 different problems, but there is 1"
            f"{reason if split.dropped.total else ''}; {'correct them, or ' if split.dropped.total else ''}set it to 1",
            code="no_rows",
        )
    ranked = sorted(problems, key=lambda problem: _rank(problem, config.seed))
    held_out_problems = set(ranked[: min(max(round(fraction * len(ranked)), 1), len(ranked) - 1)])
    train = [example for example, problem in zip(split.examples, of_rows, strict=True) if problem in held_out_problems]
    held_out = [
        example for example, problem in zip(split.examples, of_rows, strict=True) if problem not in held_out_problems
    ]
    return (
        LoadedSplit(train, split.dropped, _count_sets(train, split)),
        _interleaved(LoadedSplit(held_out, Dropped(), _count_sets(held_out, split))),
    )


def _count_sets(examples: list[Example], loaded: LoadedSplit) -> dict[str, int]:
    return {name: sum(example.columns[SET_COLUMN] == name for example in examples) for name in loaded.counts}


def _interleaved(loaded: LoadedSplit) -> LoadedSplit:
    """Spread the sets of a mixture evenly, each in its own order."""
    if not loaded.counts:
        return loaded
    counts = dict.fromkeys(loaded.counts, 0)
    places = []
    for example in loaded.examples:
        name = example.columns[SET_COLUMN]
        places.append((counts[name] + 0.5) / loaded.counts[name])
        counts[name] += 1
    order = sorted(range(len(places)), key=places.__getitem__)
    return dataclasses.replace(loaded, examples=[loaded.examples[number] for number in order])


def _first_examples(config: Config) -> LoadedSplit:
    """Return the first `evaluation.num_samples` held-out rows of streamed data, in equal parts from each set."""
    split: Split = "test" if config.training.train_fraction >= 1.0 else "train"
    parts = _parts(config, split)
    limit = -(-config.evaluation.num_samples // len(parts))
    examples: list[Example] = []
    all_dropped, counts = Dropped(), {}
    for name, part in parts.items():
        dropped = Dropped()
        rows = iter_examples(part, split, dropped, name)
        held_out = rows if split == "test" else (example for example in rows if is_held_out(example, config))
        own = list(itertools.islice(held_out, limit))
        if not own and split == "test":
            raise nothing_left(split, dropped, name)
        examples += own
        if name is None:
            all_dropped = dropped
        else:
            counts[name] = len(own)
            all_dropped.absorb(dropped, name)
    if not examples:
        raise DataError(
            f"training.train_fraction={config.training.train_fraction} leaves no rows for evaluation; lower it, or"
            f" set training.test_data_dir",
            code="no_rows",
        )
    return LoadedSplit(examples, all_dropped, counts)


def _problem_of(example: Example, config: Config) -> str:
    """Return a key that is equal for rows with the same problem: the stripped question, or the whole conversation.

    Different conversations may end with the same message. A conversation of one user message has its text as key. An
    environment may make its task from any column, so the key of its problem is the whole row.
    """
    if config.environment.name is not None:
        return json.dumps(dict(example.columns), sort_keys=True, default=str)
    if example.messages is None or [message.get("role") for message in example.messages] == ["user"]:
        return example.prompt.strip()
    turns = [{**message, "content": message["content"].strip()} for message in example.messages]
    return json.dumps(turns, sort_keys=True, default=str)


def _rank(problem: str, seed: int) -> bytes:
    return hashlib.blake2b(problem.encode("utf-8"), digest_size=16, salt=str(seed).encode("ascii")[:16]).digest()
