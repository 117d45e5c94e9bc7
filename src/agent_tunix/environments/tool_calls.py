"""Tool calls in the text of a turn.

| format | a call |
| --- | --- |
| `hermes` | `<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`; also Qwen 2.5, Qwen 3 and SmolLM 3 |
| `qwen_xml` | `<tool_call><function=add><parameter=a>1</parameter></function></tool_call>`; Qwen 3.5 |
| `llama3` | `{"name": "add", "parameters": {"a": 1}}`, alone or after `<|python_tag|>` |
| `gemma` | a fence `tool_code` with `add(a=1)`, or a fence with `{"name": "add", "parameters": {"a": 1}}` |
| `olmo3` | `<function_calls>add(a=1)</function_calls>`, one call per line |

A turn may have several calls. Text that looks like a call but is not one becomes a `MalformedCall` with the reason. A
call in a thought (before `</think>`) does not count. A `</think>` in an argument does not end a thought. The closing
tag of the last call may be missing, because it may be the string at which the turn was stopped.
"""

import ast
import enum
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.environments.tools import Tool, definition_of
from agent_tunix.python_text import parse_python

# Limit on the calls that are read in one turn.
MOST_CALLS = 32

# Limits on arguments. Larger ones cannot be written as JSON again, for example in the transcript.
_DEEPEST = 100
_MOST_BITS = 14_000

_THOUGHT_ENDS = "</think>"
_STARTS_TRIED = 8
_OPEN, _CLOSE, _PYTHON_TAG = "<tool_call>", "</tool_call>", "<|python_tag|>"
_FUNCTION = re.compile(r"\s*<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]*)>")
_FUNCTION_ENDS = re.compile(r"\s*</function>")
_FUNCTION_CALLS = re.compile(r"<function_calls>(.*?)(?:</function_calls>|\Z)", re.DOTALL)
# Constants as JSON and as Python write them. Models that write values without quotes use both.
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_FENCE = re.compile(r"```([a-z_]*)[ \t]*\n(.*?)(?:\n?```|\Z)", re.DOTALL)
_LOOKS_LIKE_CALL = re.compile(r'\s*\{\s*"name"\s*:')
_ENDS_OF_TURN = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<end_of_turn>")


class ToolCallFormat(enum.StrEnum):
    """Format in which a model writes its calls."""

    HERMES = "hermes"
    QWEN_XML = "qwen_xml"
    LLAMA3 = "llama3"
    GEMMA = "gemma"
    OLMO3 = "olmo3"


class CallFault(enum.StrEnum):
    """Kind of a malformed call; the value is what the model is told."""

    EMPTY = "it is empty"
    UNCLOSED = "it ends before it is complete"
    UNOPENED = "a closing tag has no opening tag before it"
    NOT_JSON = "it is not valid JSON"
    NOT_AN_OBJECT = "it must be a JSON object"
    NO_NAME = "the name of the tool is missing"
    NAME_NOT_TEXT = "the name of the tool must be a string"
    ARGUMENTS_NOT_AN_OBJECT = "the arguments must be a JSON object"
    DUPLICATE_ARGUMENT = "an argument is given twice"
    NOT_FINITE = "a number is not finite"
    NOT_UNICODE = "a string is not valid Unicode"
    TOO_DEEP = "it is nested too deeply"
    TRAILING_TEXT = "there is text after the JSON object"
    NO_FUNCTION = "<function=NAME> is missing"
    NO_ARGUMENT_NAME = "a parameter has no name"
    UNCLOSED_PARAMETER = "a parameter has no </parameter>"
    UNEXPECTED_TEXT = "there is text outside of the parameters"
    NOT_PYTHON = "it is not a valid expression"
    NOT_A_CALL = "it is not a call of a tool"
    POSITIONAL_ARGUMENT = "every argument must be named"
    NOT_A_LITERAL = "every argument must be a plain value"
    TOO_MANY = f"a turn may have at most {MOST_CALLS} calls"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that was read from a turn.

    Attributes:
        arguments: Plain data, not yet validated against the tool.
    """

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """Text that looks like a call but is not one.

    Attributes:
        fault: Kind of the fault.
        text: The text.
        name: Name of the tool, if it could be read.
    """

    fault: CallFault
    text: str
    name: str = ""

    @property
    def message(self) -> str:
        """Sentence about what was wrong."""
        return f"malformed tool call: {self.fault}."


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """Text of a turn, divided.

    Attributes:
        content: Text without the calls that were read.
        calls: Calls in order, malformed ones among them.
    """

    content: str
    calls: tuple[ToolCall | MalformedCall, ...]


def parse_turn(text: str, call_format: ToolCallFormat | str, tools: Sequence[Tool] = ()) -> ParsedTurn:
    """Return the calls in the text of a turn, and the text around them.

    Args:
        text: Text that the model wrote, without the end-of-turn token.
        call_format: Format of the calls.
        tools: Tools of the episode. `qwen_xml` has no types, so the tools' types decide which values are strings.
    """
    reader = _READERS[ToolCallFormat(call_format)]
    start = _end_of_thought(text, reader, tools)
    if start is None:
        return ParsedTurn(text, ())
    rest = text[start:]
    for end in _ENDS_OF_TURN:
        rest = rest.removesuffix(end)
    calls: list[ToolCall | MalformedCall] = []
    content = [text[:start]]
    for part in reader(rest, tools):
        if isinstance(part, str):
            content.append(part)
        elif len(calls) == MOST_CALLS:
            calls.append(MalformedCall(CallFault.TOO_MANY, ""))
            break
        else:
            calls.append(part)
            content.append(part.text if isinstance(part, MalformedCall) else "")
    return ParsedTurn("".join(content).strip() if calls else text, tuple(calls))


def text_after_thoughts(text: str) -> str:
    """Return the text after the last `</think>`; "" in a thought that has not ended."""
    answer = text.rpartition(_THOUGHT_ENDS)[2]
    return "" if "<think>" in answer else answer


# A part of a turn: text, a call or a malformed call.
_Part = str | ToolCall | MalformedCall
_Reader = Callable[[str, Sequence[Tool]], Iterator[_Part]]


def _end_of_thought(text: str, reader: _Reader, tools: Sequence[Tool]) -> int | None:
    """Return the position after the last `</think>` outside the arguments; 0 for no thought, None for an open one."""
    ends = [match.end() for match in re.finditer(_THOUGHT_ENDS, text)]
    if not ends:
        return None if "<think>" in text else 0
    starts = [0, *ends[:-1]][:_STARTS_TRIED]
    return next((start for start in starts if _ends_in_argument(reader(text[start:], tools))), ends[-1])


def _ends_in_argument(parts: Iterable[_Part]) -> bool:
    """Return True if the first `</think>` is in an argument of a call."""
    for part in parts:
        if isinstance(part, ToolCall):
            arguments = json.dumps(part.arguments)
            if _THOUGHT_ENDS in arguments:
                return _OPEN not in arguments  # an unclosed call of the thought would reach to the next call
        elif "think>" in (part if isinstance(part, str) else part.text):
            return False
    return False


class _Fault(Exception):
    def __init__(self, fault: CallFault, name: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.name = name


# --- tagged calls -----------------------------------------------------------------------------------------------------


def _read_hermes(text: str, tools: Sequence[Tool]) -> Iterator[_Part]:
    return _read_tagged(text, lambda start: _json_call(text, start))


def _read_qwen_xml(text: str, tools: Sequence[Tool]) -> Iterator[_Part]:
    return _read_tagged(text, lambda start: _xml_call(text, start, tools))


def _read_tagged(text: str, read_call: Callable[[int], tuple[ToolCall, int]]) -> Iterator[_Part]:
    """Yield the parts of a text with `<tool_call>` tags; `read_call` returns the call at a position, and its end."""
    place = 0
    while (start := text.find(_OPEN, place)) >= 0:
        yield from _before_call(text[place:start])
        inner = start + len(_OPEN)
        try:
            call, end = read_call(inner)
            end += len(text[end:]) - len(text[end:].lstrip())
            if not (end == len(text) or text.startswith((_CLOSE, _OPEN), end)):
                raise _Fault(CallFault.TRAILING_TEXT, call.name)
        except _Fault as error:
            closing = text.find(_CLOSE, inner)
            place = len(text) if closing < 0 else closing + len(_CLOSE)
            is_cut = closing < 0 and error.fault in (CallFault.NOT_JSON, CallFault.EMPTY)
            yield MalformedCall(CallFault.UNCLOSED if is_cut else error.fault, text[start:place], error.name)
        else:
            yield call
            place = end + len(_CLOSE) if text.startswith(_CLOSE, end) else end
    yield from _before_call(text[place:])


def _before_call(text: str, closing: str = _CLOSE) -> Iterator[_Part]:
    if closing in text:
        yield MalformedCall(CallFault.UNOPENED, text)
    elif text:
        yield text


def _xml_call(text: str, start: int, tools: Sequence[Tool]) -> tuple[ToolCall, int]:
    opening = _FUNCTION.match(text, start)
    if opening is None:
        is_empty = not text[start:].partition(_CLOSE)[0].strip()
        raise _Fault(CallFault.EMPTY if is_empty else CallFault.NO_FUNCTION)
    name = opening[1].strip()
    if not name:
        raise _Fault(CallFault.NO_NAME)
    parameters = next((tool.parameters for tool in tools if tool.name == name), {})
    schemas = parameters.get("properties") or {}
    arguments: dict[str, Any] = {}
    place = opening.end()
    while (parameter := _PARAMETER.match(text, place)) is not None:
        key = parameter[1].strip()
        end = text.find("</parameter>", parameter.end())
        if not key:
            raise _Fault(CallFault.NO_ARGUMENT_NAME, name)
        if end < 0:
            raise _Fault(CallFault.UNCLOSED_PARAMETER, name)
        if key in arguments:
            raise _Fault(CallFault.DUPLICATE_ARGUMENT, name)
        value = text[parameter.end() : end].removeprefix("\n").removesuffix("\n")
        arguments[key] = _typed(value, schemas.get(key), parameters)
        place = end + len("</parameter>")
    closing = _FUNCTION_ENDS.match(text, place)
    if closing is None:
        raise _Fault(CallFault.UNEXPECTED_TEXT if text[place:].strip() else CallFault.UNCLOSED, name)
    return ToolCall(name, arguments), closing.end()


def _typed(value: str, schema: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a value that was written without a type.

    The first case that applies decides: the text itself, if it is a value of the schema's `enum`; null, if the schema
    allows null and the text is null; the text itself, if the schema allows a string; a constant or JSON, if the text is
    one; the text itself.
    """
    if not isinstance(schema, Mapping):
        return value
    schema = definition_of(schema, parameters)
    options = [schema]
    options += [definition_of(one, parameters) for one in schema.get("anyOf") or () if isinstance(one, Mapping)]
    if any(isinstance(one.get("enum"), list) and value in one["enum"] for one in options):
        return value
    types = [one.get("type") for one in options]
    kinds = [kind for one in types for kind in (one if isinstance(one, list) else [one])]
    if "null" in kinds and value in ("null", "None"):
        return None
    if "string" in kinds:
        return value
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    try:
        decoded, end = _load_json(value, 0)
        return value if value[end:].strip() else _plain(decoded)
    except _Fault:
        return value


# --- JSON -------------------------------------------------------------------------------------------------------------


def _read_llama3(text: str, tools: Sequence[Tool]) -> Iterator[_Part]:
    content, tag, rest = text.partition(_PYTHON_TAG)
    if not tag:
        content, rest = "", text
        if not _is_call(rest):
            yield text
            return
    if content:
        yield content
    yield from _json_sequence(rest)


def _json_sequence(text: str) -> Iterator[_Part]:
    """Yield calls that stand one after the other, divided by white space or semicolons."""
    place = 0
    while True:
        while place < len(text) and (text[place].isspace() or text[place] == ";"):
            place += 1
        if place == len(text):
            if not text.strip():
                yield MalformedCall(CallFault.EMPTY, text)
            return
        try:
            call, place = _json_call(text, place)
        except _Fault as error:
            yield MalformedCall(error.fault, text[place:], error.name)
            return
        yield call


def _is_call(text: str) -> bool:
    """Return True if a text without any tag begins with an object that has a name."""
    try:
        value, _ = _load_json(text, 0)
    except _Fault:
        return _LOOKS_LIKE_CALL.match(text) is not None
    return isinstance(value, dict) and "name" in value and ("parameters" in value or "arguments" in value)


def _json_call(text: str, start: int) -> tuple[ToolCall, int]:
    value, end = _load_json(text, start)
    return _call_of(value), end


def _call_of(value: Any) -> ToolCall:
    if not isinstance(value, dict):
        raise _Fault(CallFault.NOT_AN_OBJECT)
    if "name" not in value or value["name"] == "":
        raise _Fault(CallFault.NO_NAME)
    name = value["name"]
    if not isinstance(name, str):
        raise _Fault(CallFault.NAME_NOT_TEXT)
    _plain(name)
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):  # as OpenAI's API writes them
        try:
            arguments, _ = _load_json(arguments, 0)
        except _Fault as error:
            raise _Fault(CallFault.ARGUMENTS_NOT_AN_OBJECT, name) from error
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise _Fault(CallFault.ARGUMENTS_NOT_AN_OBJECT, name)
    try:
        return ToolCall(name, _plain(arguments))
    except _Fault as error:
        raise _Fault(error.fault, name) from error


def _load_json(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a position, and its end."""
    while start < len(text) and text[start].isspace():
        start += 1
    if start == len(text) or text.startswith(_CLOSE, start):
        raise _Fault(CallFault.EMPTY)
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError:
        raise _Fault(CallFault.TOO_DEEP) from None
    except ValueError:
        raise _Fault(CallFault.NOT_JSON) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise _Fault(CallFault.DUPLICATE_ARGUMENT)
    return mapping


def _refuse_constant(name: str) -> None:
    raise _Fault(CallFault.NOT_FINITE)


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)


def _plain(value: Any, depth: int = _DEEPEST) -> Any:
    """Return a value as JSON represents it; raise _Fault if JSON cannot."""
    if not depth:
        raise _Fault(CallFault.TOO_DEEP)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Fault(CallFault.NOT_UNICODE) from None
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise _Fault(CallFault.NOT_FINITE)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise _Fault(CallFault.NOT_A_LITERAL)
        return {_plain(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value]
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and _is_short(value)):
        return value
    raise _Fault(CallFault.NOT_A_LITERAL)


def _is_short(number: int) -> bool:
    return number.bit_length() <= _MOST_BITS


# --- Python -----------------------------------------------------------------------------------------------------------


def _read_gemma(text: str, tools: Sequence[Tool]) -> Iterator[_Part]:
    place = 0
    for fence in _FENCE.finditer(text):
        language, body = fence[1], fence[2]
        if language not in ("tool_code", "tool_call") and not _is_json_call(body, language):
            continue
        if text[place : fence.start()]:
            yield text[place : fence.start()]
        place = fence.end()
        yield from _fenced_calls(body)
    if place == 0 and _is_call(text):
        yield from _json_sequence(text)
    elif text[place:]:
        yield text[place:]


_JSON_BEGINS = re.compile(r'\s*(?:\{|\[\s*\{\s*")')


def _is_json_call(body: str, language: str) -> bool:
    return language in ("json", "") and _is_call(body.strip().removeprefix("["))


def _fenced_calls(body: str) -> Iterator[_Part]:
    try:
        if not body.strip():
            raise _Fault(CallFault.EMPTY)
        if _JSON_BEGINS.match(body):
            value, end = _load_json(body, 0)
            if body[end:].strip():
                raise _Fault(CallFault.TRAILING_TEXT)
            calls = [_call_of(one) for one in (value if isinstance(value, list) else [value])]
        else:
            calls = _python_calls(body)
    except _Fault as error:
        yield MalformedCall(error.fault, body, error.name)
    else:
        yield from calls


def _read_olmo3(text: str, tools: Sequence[Tool]) -> Iterator[_Part]:
    place = 0
    for block in _FUNCTION_CALLS.finditer(text):
        yield from _before_call(text[place : block.start()], "</function_calls>")
        place = block.end()
        yield from _fenced_calls(block[1])
    yield from _before_call(text[place:], "</function_calls>")


def _python_calls(body: str) -> list[ToolCall]:
    """Return the calls that a text of Python expressions makes; nothing is run."""
    try:
        tree = parse_python(body.strip())
    except (RecursionError, MemoryError):
        raise _Fault(CallFault.TOO_DEEP) from None
    except (SyntaxError, ValueError):
        raise _Fault(CallFault.NOT_PYTHON) from None
    nodes: list[ast.expr] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Expr):
            raise _Fault(CallFault.NOT_A_CALL)
        nodes += statement.value.elts if isinstance(statement.value, ast.List) else [statement.value]
    if not nodes:
        raise _Fault(CallFault.EMPTY)
    return [_python_call(node) for node in nodes]


def _python_call(node: ast.expr) -> ToolCall:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Call):
        raise _Fault(CallFault.NOT_A_CALL)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if not name:
        raise _Fault(CallFault.NOT_A_CALL)
    if node.args:
        raise _Fault(CallFault.POSITIONAL_ARGUMENT, name)
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _Fault(CallFault.POSITIONAL_ARGUMENT, name)
        try:
            arguments[keyword.arg] = _plain(ast.literal_eval(_JsonConstants().visit(keyword.value)))
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise _Fault(CallFault.NOT_A_LITERAL, name) from None
        except _Fault as error:
            raise _Fault(error.fault, name) from None
    return ToolCall(name, arguments)


class _JsonConstants(ast.NodeTransformer):
    """A replacement of the names `true`, `false` and `null` by the constants that JSON means by them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node


_READERS: dict[ToolCallFormat, _Reader] = {
    ToolCallFormat.HERMES: _read_hermes,
    ToolCallFormat.QWEN_XML: _read_qwen_xml,
    ToolCallFormat.LLAMA3: _read_llama3,
    ToolCallFormat.GEMMA: _read_gemma,
    ToolCallFormat.OLMO3: _read_olmo3,
}
