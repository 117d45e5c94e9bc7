"""Small sequence-classification models of random weights, as transformers saves them."""

from pathlib import Path
from typing import Any

import pytest

from agent_tunix.policy.files.directory import EMBEDDED_MODEL

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def save_decoder(directory: Path, *, num_labels: int = 1, template: str | None = TEMPLATE, pad: bool = True) -> Path:
    """A Llama whose score is read at the last token, with the tokenizer of the embedded model."""
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(1)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(EMBEDDED_MODEL / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>" if pad else None,
        additional_special_tokens=["<|im_start|>"],
        model_max_length=256,
    )
    tokenizer.chat_template = template
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        num_labels=num_labels,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = transformers.LlamaForSequenceClassification(config)
    model.score.weight.data.normal_(std=1.0)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def save_encoder(directory: Path) -> Path:
    """A BERT of three labels, whose tokenizer adds its own special tokens."""
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(2)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789.,?<>/"]
    words += [f"##{word}" for word in words[5:]]
    tokenizer = transformers.BertTokenizer(vocab={word: n for n, word in enumerate(words)}, model_max_length=64)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        num_labels=3,
    )
    model = transformers.BertForSequenceClassification(config)
    model.classifier.weight.data.normal_(std=1.0)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
