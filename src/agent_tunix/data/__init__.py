"""Rows → examples → prompts → batches; knows no scores and no devices."""

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
)
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Example
from agent_tunix.data.mixing import Interleaving
from agent_tunix.data.orders import make_order, set_seeds
from agent_tunix.data.prompts import PromptEncoder, Tokenizer, encode_prompt, filter_over_long, messages_for
from agent_tunix.data.streams import endless, shuffle_within

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
    "Tokenizer",
    "count_steps",
    "encode_prompt",
    "endless",
    "filter_over_long",
    "is_held_out",
    "iter_examples",
    "load_evaluation",
    "load_examples",
    "load_splits",
    "make_order",
    "messages_for",
    "nothing_left",
    "peek_example",
    "peek_examples",
    "set_seeds",
    "shuffle_within",
]
