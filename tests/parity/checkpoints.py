"""A small random checkpoint of every family, made by transformers."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tests.parity.families import FAMILIES

transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def make_checkpoint(family: str, directory: Path) -> None:
    """Save a checkpoint of a key of `FAMILIES`, in several files, whose every weight shows in the logits."""
    model_class, config_class, values = FAMILIES[family]
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**values)).float()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.3)
        else:
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
        if name.endswith(".A_log"):
            # As initialised, the state forgets all but one token.
            parameter.data.sub_(4.0)
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):  # it never trains
            buffer.uniform_(0.5, 1.5)
    model.save_pretrained(directory, max_shard_size="100KB")


def load_checkpoint(directory: Path, dtype: str = "float32") -> Any:
    """The model of a directory as transformers computes it, softcaps included, which only eager attention has."""
    config = transformers.AutoConfig.from_pretrained(directory)
    model_class = getattr(transformers, config.architectures[0])
    return model_class.from_pretrained(directory, dtype=getattr(torch, dtype), attn_implementation="eager").eval()
