"""The conversation for an example: system message, worked examples, question."""

import dataclasses
import hashlib
import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.dropped import RowError
from agent_tunix.data.examples import ASKING_ROLES, ROLES, WORKED_SOLUTION, Example
from agent_tunix.errors import ConfigError, DataError

Message = dict[str, Any]

# The same slots that the format rewards find in `prompt.format`.
_SLOT = re.compile(r"\{(\w*)\}")


def messages_for(prompt: PromptConfig, example: Example) -> list[Message]:
    """Return the conversation of an example, up to the model's turn.

    `prompt.system` comes first, unless the example's own conversation has a system message. The worked examples of
    `prompt.few_shot` follow, then the example's conversation or question.

    Raises:
        ConfigError: A worked example lacks a column that the template names, or rows hold conversations and
            `prompt.template` is set.
        DataError: The row lacks a column that `prompt.template` names.
        RowError: The model cannot continue the example's own conversation.
    """
    own = _conversation(prompt, example)
    if own[0]["role"] == "system":
        opening = [own.pop(0)]
    else:
        opening = [] if any(message["role"] == "system" for message in own) else _system(prompt)
    return [*opening, *few_shot_messages(prompt), *own]


def few_shot_messages(prompt: PromptConfig) -> list[Message]:
    """Return the worked examples as turns of the user and the model.

    Raises:
        ConfigError: An example lacks its question, its answer, or a column that `prompt.template` names.
    """
    messages = []
    for number, shot in enumerate(prompt.few_shot):
        name = f"prompt.few_shot[{number}]"
        question = _text_of(shot, "prompt", "question")
        response = _text_of(shot, "response") or _worked_response(prompt.format, shot)
        if question is None or response is None:
            requirement = "a prompt" if question is None else "an answer"
            raise ConfigError(
                f"{name} must have {requirement}, but has {', '.join(shot) or 'nothing'}", code="invalid_prompt"
            )
        try:
            message = fill_template(prompt.template, question, {"question": question, **shot})
        except LookupError as error:
            raise ConfigError(
                f"{name} {error.args[0]}; give it, or change prompt.template", code="invalid_prompt"
            ) from error
        messages += [{"role": "user", "content": message}, {"role": "assistant", "content": response}]
    return messages


def fill_template(template: str | None, question: str, columns: Mapping[str, Any]) -> str:
    """Return the user's message.

    Args:
        template: Text with column names in braces. `{prompt}` is the question; `{{` and `}}` are literal braces. With
            None the message is the question.
        question: Text of the problem.
        columns: Columns that the template may name. Values are inserted unchanged; braces in them have no meaning.

    Raises:
        LookupError: The template names a column that is absent or null; the message says which.
        ConfigError: The template is not valid.
    """
    if template is None:
        return question.strip()
    parts = []
    for literal, name in read_template(template):
        parts.append(literal)
        if name is not None:
            value = question.strip() if name == "prompt" else columns.get(name)
            if value is None:
                has = ", ".join(key for key, cell in columns.items() if cell is not None) or "nothing"
                raise LookupError(f"has no {name!r}, which prompt.template requires; it has {has}")
            parts.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    return "".join(parts).strip()


def read_template(template: str) -> Iterator[tuple[str, str | None]]:
    """Yield the pieces of `prompt.template`: literal text, and the column after it or None.

    Raises:
        ConfigError: The template has an unmatched brace, or something other than a name between braces.
    """
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(
            f"prompt.template {template!r}: {error}; write {{{{ and }}}} for braces", code="invalid_prompt"
        ) from error
    for literal, name, spec, conversion in pieces:
        if name is not None and (spec or conversion or not name.isidentifier()):
            field = f"{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}"
            raise ConfigError(
                f"prompt.template {template!r} must contain columns as {{{name}}}, not {{{field}}}; write {{{{ and "
                "}} for braces",
                code="invalid_prompt",
            )
        yield literal, name


def _system(prompt: PromptConfig) -> list[Message]:
    text = (prompt.system or "").strip()
    return [{"role": "system", "content": text}] if text else []


def _conversation(prompt: PromptConfig, example: Example) -> list[Message]:
    if example.messages is None:
        try:
            question = fill_template(prompt.template, example.prompt, example.columns)
        except LookupError as error:
            raise DataError(f"row {example.index} {error.args[0]}", code="missing_column") from error
        return [{"role": "user", "content": question}]
    if prompt.template is not None:
        raise ConfigError(
            "prompt.template requires rows with a question, but the rows contain conversations; set "
            "prompt.template=null",
            code="invalid_prompt",
        )
    return _checked(example.messages)


def _checked(messages: tuple[Mapping[str, Any], ...]) -> list[Message]:
    if not messages:
        raise RowError("the conversation is empty")
    for place, message in enumerate(messages, 1):
        role = message.get("role")
        if role not in ROLES:
            raise RowError(f"a role that is not one of {', '.join(ROLES)}", f"message {place} has {role!r}")
        for field, value in message.items():
            if not isinstance(value, str) and field != "tool_calls":
                raise RowError(f"the {field} of a message is not text", f"message {place}: {type(value).__name__}")
        if "content" not in message:
            raise RowError("a message without content", f"message {place}")
    if messages[-1]["role"] not in ASKING_ROLES:
        raise RowError("the conversation does not end with the user's turn", f"it ends with {messages[-1]['role']}")
    return [dict(message) for message in messages]


def _text_of(shot: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of the named values that is not null, as stripped text."""
    value = next((shot[name] for name in names if shot.get(name) is not None), None)
    return None if value is None else str(value).strip()


def _worked_response(form: str, shot: Mapping[str, Any]) -> str | None:
    """Return the answer in `prompt.format` if every slot of it can be filled; else the plain answer."""
    answer = _text_of(shot, "answer")
    if answer is None:
        return None
    values = {name: text for name in shot if (text := _text_of(shot, name))}
    values["answer"] = answer
    if reasoning := _text_of(shot, "reasoning", WORKED_SOLUTION, "solution"):
        values["reasoning"] = reasoning
    if not all(slot in values for slot in _SLOT.findall(form)):
        return answer
    return _SLOT.sub(lambda slot: values[slot[1]], form)


def draw_few_shot(prompt: PromptConfig, examples: Sequence[Example], seed: int) -> PromptConfig:
    """Return the configuration with `prompt.num_few_shot` training rows drawn and added to `prompt.few_shot`.

    A hash of each distinct problem's text and the seed decides which rows are drawn. Reordering the rows or adding a
    few does not change them.

    Args:
        prompt: Prompt configuration; it is not modified.
        examples: All training rows.
        seed: The run's seed.

    Raises:
        ConfigError: A row holds a conversation, which has no question and answer to show.
        DataError: There are too few distinct problems.
    """
    if prompt.num_few_shot == 0:
        return prompt
    by_problem: dict[str, Example] = {}
    for example in examples:
        if example.messages is not None:
            raise ConfigError(
                "prompt.num_few_shot requires rows with questions and answers, but the rows contain conversations; "
                "set it to 0 and write worked examples in prompt.few_shot",
                code="invalid_prompt",
            )
        by_problem.setdefault(example.prompt.strip(), example)
    if len(by_problem) <= prompt.num_few_shot:
        raise DataError(
            f"prompt.num_few_shot={prompt.num_few_shot} leaves no training problem, because there are "
            f"{len(by_problem)} different ones; set it below {len(by_problem)}",
            code="no_rows",
        )
    problems = sorted(by_problem, key=lambda problem: _rank(problem, seed))[: prompt.num_few_shot]
    shots = [_as_shot(prompt, by_problem[problem]) for problem in problems]
    return dataclasses.replace(prompt, few_shot=[*prompt.few_shot, *shots], num_few_shot=0)


def shown_problems(prompt: PromptConfig) -> set[str]:
    """Return the problems of the worked examples, which are not used for training or evaluation."""
    texts = (shot.get("prompt", shot.get("question")) for shot in prompt.few_shot)
    return {str(text).strip() for text in texts if text is not None}


def _as_shot(prompt: PromptConfig, example: Example) -> dict[str, Any]:
    """Return the columns that a worked example needs, so that the run's config.yaml can reproduce it alone."""
    names = [name for _, name in read_template(prompt.template)] if prompt.template is not None else []
    shot = {name: example.columns[name] for name in names if name is not None and name in example.columns}
    for name in (WORKED_SOLUTION, "solution", "answer"):
        if name in example.columns:
            shot[name] = example.columns[name]
    # A configuration cannot hold dates and similar values; a prompt shows them as text anyway.
    plain: dict[str, Any] = json.loads(json.dumps({**shot, "prompt": example.prompt.strip()}, default=str))
    return plain


def _rank(problem: str, seed: int) -> bytes:
    salt = b"few-shot" + seed.to_bytes(8, "big")
    return hashlib.blake2b(problem.encode("utf-8"), digest_size=16, salt=salt).digest()
