"""Reading of Hydra's sweeps, `KEY=a,b` or `KEY=interval(0,1)`, as dimensions of a search."""

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep, Transformer
from hydra.errors import HydraException

from agent_tunix.errors import ConfigError
from agent_tunix.training.tuning import Choice, Dimension, SearchRange


def read_space(overrides: Sequence[str]) -> tuple[list[str], dict[str, Dimension]]:
    """Return the overrides that all trials share, and the dimensions by key.

    `choice(a,b)` and `a,b` are choices. `interval(low,high)` is a range of real numbers; `int(interval(1,9))` of
    integers; `tag(log,interval(1e-5,1e-3))` has a logarithmic scale. `range(4,17,step=4)` is 4, 8, 12 and 16,
    as is `range(16,0,step=-4)`.

    Raises:
        ConfigError: An override cannot be read, or is a sweep that a search cannot draw from.
    """
    try:
        entries = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(f"an override cannot be read: {error}", code="invalid_override") from error
    fixed = [str(override.input_line) for override in entries if not override.is_sweep_override()]
    return fixed, {
        override.get_key_element(): _dimension(override) for override in entries if override.is_sweep_override()
    }


def _dimension(override: Override) -> Dimension:
    value = override.value()
    if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
        log = "log" in value.tags
        if not value.start < value.end or (log and value.start <= 0):
            raise ConfigError(
                f"{override.input_line} must have a lower bound below its upper bound; with tag(log, …) both must "
                "be above 0",
                code="invalid_search",
            )
        return SearchRange(value.start, value.end, log=log)
    if isinstance(value, RangeSweep) and value.start is not None and value.stop is not None:
        if "log" in value.tags:
            raise ConfigError(
                f"{override.input_line}: tag(log, …) requires an interval, not a range, whose steps are equal; use "
                "tag(log,int(interval(low,high))), or remove the tag",
                code="invalid_search",
            )
        numbers = sorted(value.range())
        if not numbers:
            raise ConfigError(
                f"{override.input_line} contains no numbers; the end of the range is exclusive", code="invalid_search"
            )
        return SearchRange(numbers[0], numbers[-1], step=abs(value.step))
    if isinstance(value, ChoiceSweep):
        return Choice(tuple(map(str, override.sweep_iterator(transformer=Transformer.encode))))
    raise ConfigError(
        f"{override.input_line}: a search supports only choices (a,b), interval(low,high) and range(start,stop,step)",
        code="invalid_search",
    )
