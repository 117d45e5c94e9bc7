import pytest

from agent_tunix.service.reviews import SourceDiff, diff_sources


def shown(diff: SourceDiff) -> list[str]:
    signs = {"same": " ", "removed": "-", "added": "+", "skipped": "…"}
    return [f"{signs[line.kind]}{line.text}" for line in diff.lines]


def test_what_is_changed_stands_between_what_surrounds_it() -> None:
    before = "\n".join(map(str, range(10)))
    diff = diff_sources(before, before.replace("5", "five"))
    assert shown(diff) == ["…2", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8", "…1"]
    assert (diff.added, diff.removed) == (1, 1)


def test_lines_are_numbered_in_both() -> None:
    diff = diff_sources("a\nb\nc", "a\nc")
    assert [(line.before, line.after) for line in diff.lines] == [(1, 1), (2, None), (3, 2)]


@pytest.mark.parametrize(("before", "after"), [("a\r\nb\r\n", "a\nb\n"), ("a\rb", "a\nb"), ("", ""), ("x", "x")])
def test_how_lines_end_is_no_change(before: str, after: str) -> None:
    assert not diff_sources(before, after)
    assert diff_sources(before, after).lines == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [("a\nb", "b\na\nb"), ("a", "b"), ("", "a\nb"), ("a\nb\nc\nd", "d\nc"), ("a\x0cb\u2028c", "a\x0cb\u2028d")],
)
def test_one_source_follows_from_the_other_and_the_difference(before: str, after: str) -> None:
    lines = diff_sources(before, after).lines
    assert "\n".join(line.text for line in lines if line.kind != "added") == before
    assert "\n".join(line.text for line in lines if line.kind != "removed") == after


def test_sources_beyond_comparing_are_taken_out_and_put_in_as_a_whole() -> None:
    before, after = ("\n".join(f"{number * factor % 101}" for number in range(9000)) for factor in (1, 37))
    diff = diff_sources(before, after)
    assert diff.added == diff.removed > 8000
    assert len(diff.lines) == 2000
    assert diff.left_out == diff.added + diff.removed - 2000
