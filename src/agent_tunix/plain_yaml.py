"""Reading of YAML that somebody else may have written: plain values, within limits."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import yaml

MAX_BYTES = 8 * 2**20
_MAX_NODES = 200_000
_MAX_DEPTH = 50
# Longer words are refused: YAML reads `1:30:00` as a base-60 number, in quadratic time.
_MAX_WORD = 10_000
# Digits of a number that is a key.
_LONGEST_NUMBER = 18
# Larger integers are no floats, and those of over 4,300 digits have no decimal text.
_MOST_BITS = 1023
_INT_TAG = "tag:yaml.org,2002:int"
_FLOAT_TAG, _TIMESTAMP_TAG = "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_SafeLoader):  # type: ignore[misc]  # chosen above
    """Loader of YAML as `to_yaml` writes it: `1e-4` is a number, a date is text, and no key may occur twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(names) != len(set(names)):
            raise ValueError(f"the key {Counter(names).most_common(1)[0][0]} occurs twice")
        if any(len(key.value) > _LONGEST_NUMBER and key.tag == _INT_TAG for key, _ in node.value):
            raise ValueError("a key is too large a number")  # such keys may have equal hashes
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: Any) -> Any:
        value = super().construct_yaml_int(node)
        if value.bit_length() > _MOST_BITS:
            raise ValueError(f"it has too large a number in line {node.start_mark.line + 1}")
        return value


_PlainLoader.add_constructor(_INT_TAG, _PlainLoader.construct_yaml_int)

_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
    for first, resolvers in _PlainLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver(
    _FLOAT_TAG,
    re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)\Z"),
    list("-+0123456789."),
)


def load_plain_yaml(content: bytes | str, *, max_bytes: int = MAX_BYTES, max_nodes: int = _MAX_NODES) -> Any:
    """Return YAML as plain values: mappings, lists, text, numbers, booleans and null.

    Raises:
        ValueError: It has a tag or an alias, or is too large, too deep or malformed.
    """
    if len(content) > max_bytes:
        raise ValueError(f"it has {len(content):,} bytes, more than the allowed {max_bytes:,}")
    try:
        # Checked before loading: the loader recurses in C without a limit.
        events: Any = yaml.parse(content, _SafeLoader)
        _check_shape(events, max_nodes)
        return yaml.load(content, _PlainLoader)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error


def _check_shape(events: Iterable[Any], max_nodes: int) -> None:
    depth = nodes = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            raise ValueError(f"it has an alias or a tag in line {line}")
        if isinstance(event, yaml.ScalarEvent) and _is_long_word(event):
            raise ValueError(f"it has a word that is too long in line {line}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > max_nodes or depth > _MAX_DEPTH:
            raise ValueError(f"it is too large or too deeply nested in line {line}")


def _is_long_word(event: Any) -> bool:
    return len(event.value) > _MAX_WORD and not event.style and " " not in event.value
