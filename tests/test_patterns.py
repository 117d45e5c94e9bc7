"""Regular expressions of others, which are refused before they take all memory."""

import pytest

from agent_tunix.patterns import compile_pattern


def nested(times: int, repeat: str) -> str:
    """Return `a` with repeats around repeats."""
    return "(?:" * times + "a" + f"{repeat})" * times


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^[A-Za-z0-9+/]{0,20000}={0,2}$", "QQ=="),
        (r"^(?:\S+\s+){1,500}\S+$", "a b"),
        (r"^\(?0\d{3}\)?[-)(\]]?x{4}(?!.{9999})", "(0123)xxxx"),
        (r"^[](?{9}]{2}\{99999\}$", "]({99999}"),
        (nested(40, "?"), ""),
        (nested(12, "+"), "a"),
    ],
)
def test_an_ordinary_pattern_is_compiled(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).search(text)


@pytest.mark.parametrize(
    "pattern",
    [
        nested(12, "{2,3}"),
        nested(12, "{2}+"),
        nested(6, "{9}?"),
        nested(16, "++"),
        "a{50000}",
        "(?:[)]a{300}){300}",
        "(?:a{300}[](]){300}",
        r"(?:\)[^])]a{300}\(){300}",
        "(?:a{300}[[:alpha:](]){300}",
        "(?x)(?:a{300}#(\n){300}",
        "(?V1)(?:[[a](]a{300}){300}",
        "(?:a{300}(?#() ){300}",
        "(?i-f:a)(?if)[a-z]",
        "(?R)a",
        "(a)(?1)",
        "(?P<a>b)(?&a)(?P>a)",
        nested(60, "?"),
        "a" * 20_000,
    ],
)
def test_a_pattern_that_could_take_all_memory_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="it may"):
        compile_pattern(pattern)
