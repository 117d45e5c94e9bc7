"""Text of a reply while its tokens arrive. What was given out never changes.

A character or a stop string may end in a later token, and a text may turn out to be a call of a tool. So the text from
where this is open on is held back.
"""

from collections.abc import Callable, Sequence

from agent_tunix.environments import ToolCallFormat
from agent_tunix.sampling.stop_strings import cut_at_stop

# Tokens that are decoded together before the first ones are left behind, and those that are kept before the others: a
# decoder may treat the first token of a text differently.
_DECODED_TOKENS = 512
_KEPT_TOKENS = 32
_UNFINISHED = "\ufffd"
_CALL_SIGNS = {
    ToolCallFormat.HERMES: ("<tool_call>", "</tool_call>"),
    ToolCallFormat.QWEN_XML: ("<tool_call>", "</tool_call>"),
    ToolCallFormat.LLAMA3: ("<|python_tag|>",),
    ToolCallFormat.GEMMA: ("```",),
    ToolCallFormat.OLMO3: ("<function_calls>", "</function_calls>"),
}


class ReplyText:
    """The text of a reply of which parts arrive; `num_sent` of its characters were given out.

    Args:
        decode: Function that returns the text of token ids.
        stop_strings: Strings that end the reply; neither they nor what follows them is part of the text.
        call_format: Format in which calls of tools are read; None if none are.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop_strings: Sequence[str] = (),
        call_format: ToolCallFormat | None = None,
    ) -> None:
        self._decode = decode
        self._stop_strings = stop_strings
        self._call_format = call_format
        self._signs = () if call_format is None else _CALL_SIGNS[call_format]
        self._ids: list[int] = []
        self._before = ""
        self._text = ""
        self.num_sent = 0

    @property
    def text(self) -> str:
        """The whole text so far, with what is held back."""
        return cut_at_stop(self._text, self._stop_strings)

    def add(self, tokens: Sequence[int]) -> str:
        """Return the text that is certain with further tokens, without what was returned before."""
        if not tokens:
            return ""
        self._ids += tokens
        recent = self._decode(self._ids)
        self._text = self._before + recent
        if len(self._ids) > _DECODED_TOKENS:
            self._leave_behind(recent)
        end = self._certain_end()
        delta = self._text[self.num_sent : end]
        self.num_sent = max(end, self.num_sent)
        return delta

    def rest(self, content: str) -> str:
        """Return the part of the final content that was not returned before."""
        sent = self._text[: self.num_sent]
        # Only white space differs: calls were taken out, and with them the space around the text.
        return content[len(sent) :] if content.startswith(sent) else content[len(sent.lstrip()) :]

    def _leave_behind(self, recent: str) -> None:
        kept = self._decode(self._ids[-_KEPT_TOKENS:])
        if recent.endswith(kept):
            self._before += recent[: len(recent) - len(kept)]
            self._ids = self._ids[-_KEPT_TOKENS:]

    def _certain_end(self) -> int:
        """Return the place in the text up to which no later token changes it."""
        text = cut_at_stop(self._text, self._stop_strings)
        if len(text) < len(self._text):  # a stop string has ended it
            strings: Sequence[str] = self._signs
        else:
            text = text.rstrip(_UNFINISHED)
            strings = (*self._stop_strings, *self._signs)
        end = len(text) - max((_overlap(text, string) for string in strings), default=0)
        if self._call_format is None:
            return end
        if self._call_format is ToolCallFormat.LLAMA3 and text.lstrip()[:1] in ("", "{"):
            return 0
        places = [place for sign in self._signs if (place := text.find(sign)) >= 0]
        return len(text[: min([end, *places])].rstrip())  # space before a call is no content


def _overlap(text: str, string: str) -> int:
    """Return the length of the longest end of the text with which a string begins, but which is not all of it."""
    return next((n for n in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:n])), 0)
