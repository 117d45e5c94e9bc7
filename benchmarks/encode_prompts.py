"""Speed of making batches of prompts from rows, compared with transformers' `apply_chat_template` on the same rows.

    python benchmarks/encode_prompts.py [--data DIR_OR_FILE] [--rows 7473] [--vocabulary 32000] [--repeats 3]

The rows come from a JSONL file, such as GSM8K's, or are generated word problems. First a byte-level BPE of the given
vocabulary is trained on them, so that the tokenizer is realistic; the times exclude that. Ours is timed from the file
to padded batches: reading, conversations, chat template, special tokens, tokenizer, lengths, order. The peer converts
the conversations to ids in one call. The benchmark checks that both give the same ids. Times are the best of the
repeats.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from transformers import AutoTokenizer

from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.schema import Config, PromptConfig
from agent_tunix.data import BatchOrder, load_examples
from agent_tunix.data.prompting import Prompts, encode_examples
from agent_tunix.policy.chat.tokenizer import Tokenizer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = r"'\p{L}+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = """\
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
LIMIT_S = 10.0


def make_tokenizer(directory: Path, texts: list[str], vocabulary: int) -> int:
    """Train a tokenizer on the rows, save it and return its size, which is below `vocabulary` if there are few rows."""
    pre = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre.Sequence(
        [pre.Split(tokenizers.Regex(WORDS), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[-1], "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return int(tokenizer.get_vocab_size())


def make_batches(config: Config, directory: Path) -> tuple[Prompts, int]:
    """Make padded batches from the rows' source, and return the prompts and the number of batches."""
    examples = load_examples(config, "train").examples
    prompts = encode_examples(examples, Tokenizer(directory, config.prompt), config)
    size = config.training.batch_size
    order = BatchOrder(len(prompts.examples), size, seed=0, num_batches=None, num_epochs=1, shuffle=True)
    for step in range(1, order.num_steps + 1):
        batch = prompts.batch(order.batch_indices(step))
        padded_BP = np.zeros((size, prompt_tokens(config)), np.int32)
        for row, ids in zip(padded_BP, batch.token_ids, strict=True):
            row[-len(ids) :] = ids
    return prompts, order.num_steps


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least wall time in seconds, and the result of the work."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), result


def main() -> None:
    """Print both times, rows per second and the ratio; exit with status 1 above the limit or if ids differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None, help="JSONL with question and answer, or a directory with train.jsonl.")
    parser.add_argument("--rows", type=int, default=7473, help="Problems made by code, where --data is not given.")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    config = Config()
    config.prompt = PromptConfig(system="Show your work, then give the result between <answer> and </answer>.")
    config.generation = dataclasses.replace(config.generation, max_prompt_length=1024)
    config.data.num_train = arguments.rows
    if arguments.data is not None:
        config.data.source, config.data.path = "jsonl", arguments.data
    texts = [text for row in load_examples(config, "train").examples for text in (row.prompt, str(row.columns))]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        size = make_tokenizer(directory, texts, arguments.vocabulary)
        ours_s, (prompts, num_batches) = best_of(arguments.repeats, lambda: make_batches(config, directory))
        peer = AutoTokenizer.from_pretrained(directory)
        conversations = [list(messages) for messages in prompts.messages]
        theirs_s, theirs = best_of(
            arguments.repeats,
            lambda: peer.apply_chat_template(conversations, add_generation_prompt=True, return_dict=False),
        )
    num_rows = len(prompts.examples)
    num_tokens = sum(map(len, prompts.token_ids))
    same = [list(ids) for ids in prompts.token_ids] == theirs
    print(f"{num_rows} rows, {num_tokens} tokens, {num_batches} batches, a vocabulary of {size}")
    print(f"agent_tunix, rows to batches:      {ours_s:7.3f} s  {num_rows / ours_s:10.0f} rows/s")
    print(f"transformers, apply_chat_template: {theirs_s:7.3f} s  {num_rows / theirs_s:10.0f} rows/s")
    print(f"ratio of times: {ours_s / theirs_s:.2f}; ids {'equal' if same else 'DIFFER'}; limit {LIMIT_S:.0f} s")
    raise SystemExit(0 if same and ours_s < LIMIT_S else 1)


if __name__ == "__main__":
    main()
