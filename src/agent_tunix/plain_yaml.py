"""Reading of YAML as plain values."""

import re
from collections import Counter
from typing import Any

import yaml

_FLOAT_TAG, _TIMESTAMP_TAG = "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_SafeLoader):  # type: ignore[misc]  # chosen above
    """Safe loader in which `1e-4` is a number, a date is text, and no key may occur twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(names) != len(set(names)):
            raise ValueError(f"the key {Counter(names).most_common(1)[0][0]} occurs twice")
        return super().construct_mapping(node, deep=deep)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
    for first, resolvers in _PlainLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver(
    _FLOAT_TAG,
    re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)\Z"),
    list("-+0123456789."),
)


def load_plain_yaml(content: bytes | str) -> Any:
    """Return YAML as plain values: mappings, lists, text, numbers, booleans and null.

    Raises:
        ValueError: It is malformed, has a tag of another library, or a key twice.
    """
    try:
        return yaml.load(content, _PlainLoader)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
