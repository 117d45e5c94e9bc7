"""Text that was given out never changes, whatever the tokens, the stop strings and the parts."""

from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.environments import ToolCallFormat, parse_turn
from agent_tunix.sampling.stop_strings import cut_at_stop
from agent_tunix.serving.routes.reply_text import ReplyText
from tests.serving.support import open_tokenizer

TOKENIZER = open_tokenizer()
PIECES = [
    "a",
    "ab",
    " ",
    "\n",
    "é",
    "世界",
    "🌍",
    "END",
    "EN",
    "<tool",
    "_call>",
    '{"name": "f"}',
    "</tool_call>",
    "```",
    "`",
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.lists(st.sampled_from(["END", "ab", "\n", "界"]), max_size=2),
    st.none() | st.sampled_from(list(ToolCallFormat)),
)
def test_deltas_add_up_to_the_text(
    text: str, sizes: list[int], stop_strings: list[str], call_format: ToolCallFormat | None
) -> None:
    ids = TOKENIZER.encode(text, allow_special=False)
    reply = ReplyText(TOKENIZER.decode, stop_strings, call_format)
    deltas, start = [], 0
    for number in range(len(ids)):
        size = sizes[number % len(sizes)]
        deltas.append(reply.add(ids[start : start + size]))
        start += size
    assert reply.text == cut_at_stop(TOKENIZER.decode(ids), stop_strings)
    content = reply.text
    if call_format is not None:
        turn = parse_turn(reply.text, call_format)
        content = turn.content
    whole = "".join([*deltas, reply.rest(content)])
    assert whole.strip() == content.strip()
    if call_format is None:
        assert whole == content


def test_long_texts_are_decoded_in_pieces_without_a_difference() -> None:
    text = "Grüße, 世界 🌍! " * 300
    ids = TOKENIZER.encode(text, allow_special=False)
    reply = ReplyText(TOKENIZER.decode)
    deltas = [reply.add(ids[start : start + 7]) for start in range(0, len(ids), 7)]
    assert "".join([*deltas, reply.rest(reply.text)]) == TOKENIZER.decode(ids)
