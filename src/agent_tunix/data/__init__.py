"""Rows → examples → prompts → batches; knows no scores and no devices."""

from agent_tunix.data.batches import BatchOrder, count_steps
from agent_tunix.data.dataset import LoadedSplit, LoadReport, load_evaluation, load_examples, load_splits, peek_example
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Example
from agent_tunix.data.few_shot import draw_few_shot, shown_problems
from agent_tunix.data.messages import few_shot_messages, messages_for
from agent_tunix.data.problems import make_problem, read_problems
from agent_tunix.data.prompts import PromptEncoder, Tokenizer, filter_over_long

__all__ = [
    "BatchOrder",
    "Dropped",
    "Example",
    "LoadReport",
    "LoadedSplit",
    "PromptEncoder",
    "RowError",
    "Tokenizer",
    "count_steps",
    "draw_few_shot",
    "few_shot_messages",
    "filter_over_long",
    "load_evaluation",
    "load_examples",
    "load_splits",
    "make_problem",
    "messages_for",
    "peek_example",
    "read_problems",
    "shown_problems",
]
