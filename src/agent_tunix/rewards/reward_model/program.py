"""The process that holds a reward model: `python program.py`. It needs torch and transformers, but not agent_tunix.

It reads and writes JSON, one value per line. The first input line holds the settings, and the first output line is
`{"loaded": {…}}` or `{"refused": reason}`. Each further input line is a list of conversations, `{"messages": […],
"prompt": …, "response": …}`. It is answered by lists of results, `{"index", "value", "num_tokens"}`, one list per
line, and then by a line `"done"`. A result without a value has `"problem"` and `"detail"`. The process ends when its
input ends.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any


def main() -> None:
    """Load the model, then score until the input ends."""
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    try:
        model = ScoringModel(settings)
    except Exception as error:  # transformers, torch and the hub may raise anything
        _say(answers, {"refused": _describe(error)})
        return
    _say(answers, {"loaded": model.facts()})
    for line in sys.stdin:
        for results in model.score(json.loads(line)):
            _say(answers, results)
        _say(answers, "done")


class ScoringModel:
    """A sequence-classification model with its tokenizer.

    Args:
        settings: Fields of `settings.ModelSettings` by name.

    Raises:
        ValueError: The checkpoint gives no score, or a setting does not fit it.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch
        import transformers

        self._torch = torch
        self._settings = settings
        path, revision = settings["path"], settings["revision"]
        config = transformers.AutoConfig.from_pretrained(path, revision=revision)
        self._label = _choose_label(settings["label_index"], config)
        _refuse_other_heads(config)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, revision=revision)
        self._model, told = transformers.AutoModelForSequenceClassification.from_pretrained(
            path, revision=revision, dtype=getattr(torch, settings["dtype"]), output_loading_info=True
        )
        if told["missing_keys"]:
            names = ", ".join(sorted(told["missing_keys"])[:5])
            raise ValueError(f"the checkpoint must have all weights, but lacks {names}")
        self._model.to(settings["device"]).eval()
        self._max_length = _max_length(settings["max_length"], self._tokenizer, config)
        pad = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else config.pad_token_id
        # Models that read the score at the last token find it by the padding. Without padding, batches have one text.
        self._pad, self._batch_size = pad, 1 if pad is None else settings["batch_size"]
        self._model.config.pad_token_id = pad
        spelt = {str(token) for token in self._tokenizer.added_tokens_decoder.values() if token.special}
        self._special = sorted({*spelt, *self._tokenizer.all_special_tokens}, key=len, reverse=True)

    def facts(self) -> dict[str, Any]:
        """Return facts about the loaded model."""
        return {
            "architecture": type(self._model).__name__,
            "label": self._model.config.id2label.get(self._label, str(self._label)),
            "max_length": self._max_length,
            "batch_size": self._batch_size,
            "chat_template": bool(self._tokenizer.chat_template),
        }

    def score(self, conversations: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Yield lists of results, one per batch. Texts of similar length share a batch."""
        encoded: list[tuple[int, dict[str, list[int]]]] = []
        refused = []
        for index, conversation in enumerate(conversations):
            try:
                inputs = self._encode(conversation)
            except Exception as error:  # a chat template may raise anything
                refused.append({"index": index, "problem": "error", "detail": _describe(error)})
                continue
            size = len(inputs["input_ids"])
            if size > self._max_length:
                detail = f"its text must have at most max_length={self._max_length} tokens, not {size}"
                refused.append({"index": index, "problem": "over_long", "detail": detail, "num_tokens": size})
            elif size == 0:
                refused.append({"index": index, "problem": "error", "detail": "its text has no tokens"})
            else:
                encoded.append((index, inputs))
        yield refused
        encoded.sort(key=lambda item: len(item[1]["input_ids"]))
        for start in range(0, len(encoded), self._batch_size):
            yield self._score_batch(encoded[start : start + self._batch_size])

    def _encode(self, conversation: dict[str, Any]) -> dict[str, list[int]]:
        """Return the model's input tokens, untruncated."""
        tokenizer, settings = self._tokenizer, self._settings
        prompt, response = self._defuse(conversation["prompt"]), self._defuse(conversation["response"])
        if settings["prompt"] == "without":
            encoded = tokenizer(response)
        elif settings["prompt"] == "pair":
            encoded = tokenizer(prompt, response)
        elif tokenizer.chat_template:
            messages = [
                {"role": message["role"], "content": self._defuse(message["content"])}
                for message in conversation["messages"]
                if settings["system"] or message["role"] != "system"
            ]
            # The template writes the special tokens, so the tokenizer must not add them.
            encoded = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)
        else:
            encoded = tokenizer(f"{prompt}\n{response}" if prompt else response)
        return {name: list(values) for name, values in encoded.items()}

    def _defuse(self, text: str) -> str:
        """Insert a space into special tokens spelled out in a text, so that no response can end its own turn."""
        for token in self._special:
            if len(token) > 1 and token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _score_batch(self, batch: Sequence[tuple[int, dict[str, list[int]]]]) -> list[dict[str, Any]]:
        """Return the results of a batch. If memory runs out, score each half separately."""
        try:
            values = self._values([inputs for _, inputs in batch])
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                return [{"index": index, "problem": "error", "detail": _describe(error)} for index, _ in batch]
            if len(batch) == 1:
                index, inputs = batch[0]
                detail = f"out of memory with a single text of {len(inputs['input_ids'])} tokens"
                return [{"index": index, "problem": "error", "detail": detail}]
            half = len(batch) // 2
            return [*self._score_batch(batch[:half]), *self._score_batch(batch[half:])]
        except (ValueError, IndexError, TypeError) as error:
            return [{"index": index, "problem": "error", "detail": _describe(error)} for index, _ in batch]
        return [
            {"index": index, "value": value, "num_tokens": len(inputs["input_ids"])}
            for (index, inputs), value in zip(batch, values, strict=True)
        ]

    def _values(self, inputs: Sequence[dict[str, list[int]]]) -> list[float]:
        torch = self._torch
        length = max(len(one["input_ids"]) for one in inputs)
        fill = {"input_ids": self._pad or 0, "attention_mask": 0}
        padded = {
            name: torch.tensor([one[name] + [fill.get(name, 0)] * (length - len(one[name])) for one in inputs])
            for name in inputs[0]
        }
        with torch.inference_mode():
            logits = self._model(**{name: tensor.to(self._model.device) for name, tensor in padded.items()}).logits
        logits = logits.float()
        activation = self._settings["activation"]
        if activation == "sigmoid":
            logits = torch.sigmoid(logits)
        elif activation == "softmax":
            logits = torch.softmax(logits, dim=-1)
        values: list[float] = logits[:, self._label].cpu().tolist()
        return values


def _choose_label(wanted: int | None, config: Any) -> int:
    """Return the index of the model output that is the reward."""
    count = config.num_labels
    if wanted is None and count == 1:
        return 0
    labels = ", ".join(f"{index}: {name}" for index, name in sorted(config.id2label.items()))
    if wanted is None:
        raise ValueError(f"the model has {count} outputs ({labels}); choose one with label_index")
    if not 0 <= wanted < count:
        raise ValueError(f"label_index must be one of the model's {count} outputs ({labels}), not {wanted}")
    return int(wanted)


def _refuse_other_heads(config: Any) -> None:
    """Raise ValueError for another kind of checkpoint, whose scoring head would have random weights."""
    names = config.architectures or []
    if names and not any("SequenceClassification" in name for name in names):
        raise ValueError(
            f"the checkpoint must be a …ForSequenceClassification model, but is {', '.join(names)}, which gives no "
            "score"
        )


def _max_length(wanted: int | None, tokenizer: Any, config: Any) -> int:
    """Return the longest text in tokens: the wanted length, which must not exceed the model's limit."""
    bounds = [getattr(config, "max_position_embeddings", None), tokenizer.model_max_length]
    # A tokenizer without a limit reports a huge number.
    most = min((bound for bound in bounds if isinstance(bound, int) and 0 < bound < 10**9), default=None)
    if wanted is not None and most is not None and wanted > most:
        raise ValueError(f"max_length must be at most {most}, the limit of the model, not {wanted}")
    return wanted or most or 4096


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def _say(answers: IO[str], message: object) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
