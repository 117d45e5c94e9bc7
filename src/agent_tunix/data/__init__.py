"""Loading of rows, examples, prompts and batches; independent of rewards and devices."""

from agent_tunix.data.batches import BatchOrder, Order, count_steps
from agent_tunix.data.dataset import (
    SET_COLUMN,
    LoadedSplit,
    LoadReport,
    is_held_out,
    iter_examples,
    load_evaluation,
    load_examples,
    load_splits,
    nothing_left,
    peek_example,
    peek_examples,
    peek_held_out,
)
from agent_tunix.data.draws import endless, shuffle_within
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Example
from agent_tunix.data.messages import draw_few_shot, few_shot_messages, messages_for, shown_problems
from agent_tunix.data.mixing import Interleaving
from agent_tunix.data.orders import make_order, set_seeds
from agent_tunix.data.problems import make_problem, read_problems
from agent_tunix.data.prompts import PromptEncoder, PromptTokenizer, filter_over_long

__all__ = [
    "SET_COLUMN",
    "BatchOrder",
    "Dropped",
    "Example",
    "Interleaving",
    "LoadReport",
    "LoadedSplit",
    "Order",
    "PromptEncoder",
    "PromptTokenizer",
    "RowError",
    "count_steps",
    "draw_few_shot",
    "endless",
    "few_shot_messages",
    "filter_over_long",
    "is_held_out",
    "iter_examples",
    "load_evaluation",
    "load_examples",
    "load_splits",
    "make_order",
    "make_problem",
    "messages_for",
    "nothing_left",
    "peek_example",
    "peek_examples",
    "peek_held_out",
    "read_problems",
    "set_seeds",
    "shown_problems",
    "shuffle_within",
]
