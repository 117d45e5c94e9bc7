"""MkDocs hook that generates the reference pages from the code at each build, and the same pages of the checkout.

The hook (`hooks:` in mkdocs.yml) makes `reference/configuration.md` from the schema, `conf/` and the tables of other
libraries' names and of TRL's fields, `reference/commands.md` from the commands' help, `reference/builtins.md` from the
docstrings of built-in rewards, `reference/errors.md` from the calls that make errors, and `reference/api.md` from
docstrings. It also rejects a site that loads anything from the network.

`docs/reference` holds these pages as plain Markdown. Write them after a change of the code; `--check`, which
`scripts/check` runs, names those that are outdated:

    python scripts/generate_reference.py
    python scripts/generate_reference.py --check
"""

import dataclasses
import importlib
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
from api_pages import api_section
from error_codes import classes, examples_by_code
from hydra import compose, initialize_config_dir
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from omegaconf import OmegaConf

from agent_tunix import cli
from agent_tunix.config import schema
from agent_tunix.config.compose import find_conf_directory, register_schema
from agent_tunix.config.limits import OneOf, limit_of
from agent_tunix.config.other_names import OTHER_NAMES, WITHOUT_KEY
from agent_tunix.rewards import get_builtin
from agent_tunix.rewards.builtin import BUILTINS
from agent_tunix.trl.config import FIELDS, MAPPED, REFUSED

CONFIGURATION_INTRO = """\
# Configuration

Every key of a run. `group=choice` takes another file of `conf/group/`, `group.key=value` sets one key:

<!-- proof -->
```bash
python run_training.py scheduler=linear optimizer.learning_rate=5e-4 grpo.num_generations=16
```

`python run_training.py --cfg job` prints the composed values without starting anything. An unknown key or a value of
the wrong type is refused, with the place named. The defaults below are those of a run without any override.
"""

COMMANDS_INTRO = """\
# Commands

`python run_training.py OVERRIDES…` is `agent-tunix train OVERRIDES…`, and `python evaluate.py OVERRIDES…` is
`agent-tunix evaluate OVERRIDES…`. An installed package has the second form everywhere; a checkout has both.
"""

BUILTINS_INTRO = """\
# Built-in rewards

Use a name in `training.reward_function`, alone or as a component. Set an argument in the component's `args` or as
`rewards.args.NAME.ARGUMENT`. The kind says what a reward measures: `correctness` looks at the answer alone, `form`,
`length` and `quality` never look at it, and a `composite` weighs both, so that a right answer earns more than a wrong
one. An invalid reference is an outcome of its own, never a 0. [Answers](../answers.md) describes how answers are found
and compared.
"""

OTHER_NAMES_INTRO = """\
## Names in other libraries

Settings of TRL, PEFT, verl, OpenRLHF, ms-swift and Tunix, and the key that does the same here. Long names with dots
are verl's. At the end are some without a key here. [From TRL](../from-trl.md) shows a whole script.
"""

TRL_INTRO = """\
## Fields of TRL's GRPOConfig

What becomes of each field of `GRPOConfig` in [`agent_tunix.trl`](../from-trl.md), with the default of TRL 1.16. A field
that is *refused* is an error unless it has its default; one that is *unneeded* changes nothing, and a run that sets it
logs the reason.
"""

API_INTRO = """\
# Python API

This page lists every public name of `agent_tunix.api`, which `agent_tunix` offers too
([Python and notebooks](../python.md)), of `agent_tunix.rewards`, the package for authors of rewards, and of
`agent_tunix.environments`, the package for authors of [environments and tools](../environments.md). Importing them
loads neither JAX nor Hydra.

```python
from agent_tunix.environments import resolve_environment
from agent_tunix.rewards import get_reward_function

print(get_reward_function("math")("<answer>4</answer>", answer="4"))  # 1.0
episode = resolve_environment("calculator").open()
print(episode.call("calculator", {"expression": "1 / 3"}).text)  # 1/3 (about 0.333333333333)
```
"""
API_PACKAGES = ("api", "rewards", "environments")
# Options of mkdocstrings, which shows the docstrings on the site.
_OF_SITE = """\
::: agent_tunix.{name}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      members: true
"""

ERRORS_INTRO = """\
# Errors

Every error that agent_tunix raises deliberately has a class and a `code`. Programs compare the code, which stays the
same when the message is reworded:

```python
from agent_tunix.errors import RewardError
from agent_tunix.rewards import resolve_reward

try:
    resolve_reward("mathh")
except RewardError as error:
    print(error.code)
```

A command prints `CLASS: MESSAGE` and exits with status 2. In the messages below, one for each code, `…` stands for a
value. All classes derive from `agent_tunix.errors.AgentTunixError`.
"""

YAML_TYPES: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "null",
    Any: "any",
}


# --- the pages --------------------------------------------------------------------------------------------------------


def configuration_page() -> str:
    """Return the Markdown of every group and key: type, default and purpose."""
    defaults = _default_values("config")
    groups = [field for field in dataclasses.fields(schema.Config) if dataclasses.is_dataclass(field.type)]
    top_level = [field for field in dataclasses.fields(schema.Config) if field not in groups]
    parts = [
        CONFIGURATION_INTRO,
        "## Top level\n",
        _key_table("", top_level, defaults),
        *(_group_section(group, defaults[group.name]) for group in groups),
        "## experiment\n",
        "`+experiment=NAME` adds a file that records only what differs from the defaults.\n",
        _choices("experiment"),
        "## evaluate.py\n",
        f"{inspect.cleandoc(schema.EvaluateConfig.__doc__ or '')}\n",
        _key_table("", list(dataclasses.fields(schema.EvaluateConfig)), _default_values("evaluate")),
        _other_names(),
        _trl_fields(),
    ]
    return "\n".join(parts)


def commands_page() -> str:
    """Return the Markdown of every command's help."""
    return "\n".join([COMMANDS_INTRO, *_command_sections(_root_command(), "agent-tunix", None)])


def builtins_page() -> str:
    """Return the Markdown of every built-in reward: its docstring and its arguments."""
    families: dict[str, list[str]] = {}
    for name, builtin in BUILTINS.items():
        families.setdefault(builtin.family, []).append(name)
    parts = [BUILTINS_INTRO, _builtins_table()]
    for family, names in families.items():
        module = importlib.import_module(f"agent_tunix.rewards.builtin.{family}")
        title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n")
        parts.append(f"## {title.removesuffix('.').partition('. ')[0]}\n\n{rest.strip()}\n")
        parts += [_builtin_section(name) for name in names]
    return "\n".join(parts)


def _builtins_table() -> str:
    rows = ["| Name | Kind | Range | |", "| --- | --- | --- | --- |"]
    for name, builtin in sorted(BUILTINS.items()):
        summary = re.sub(r" Range \[.*", "", _docstring_of(name).partition("\n")[0])
        rows.append(
            f"| [`{name}`](#{name}) | {builtin.kind} | {builtin.low:g} to {builtin.high:g} | {_cell(summary)} |"
        )
    return "\n".join(rows) + "\n"


def _builtin_section(name: str) -> str:
    """Return the docstring with its example in a fence, and the arguments that a configuration may set."""
    text, _, example = _docstring_of(name).partition(">>>")
    lines = [
        f"### `{name}` {{ #{name} }}\n",
        text.strip(),
        "",
    ]
    if example:
        lines += ["```text", f">>>{example}".strip(), "```", ""]
    parameters = inspect.signature(get_builtin(name).function).parameters.values()
    given = ("prompt", "step", "format", "num_tokens")
    settable = [p for p in parameters if p.default is not p.empty and p.name not in given]
    if settable:
        lines += ["Arguments: " + ", ".join(f"`{p.name}={p.default!r}`" for p in settable) + ".", ""]
    return "\n".join(lines)


def _docstring_of(name: str) -> str:
    return inspect.cleandoc(get_builtin(name).function.__doc__ or "")


def _group_section(group: "dataclasses.Field[Any]", defaults: dict[str, Any]) -> str:
    assert isinstance(group.type, type)
    fields = list(dataclasses.fields(group.type))
    return "\n".join(
        [
            f"## {group.name}\n",
            f"{_doc_of(group.type)}\n",
            _key_table(f"{group.name}.", fields, defaults),
        ]
        + ([_choices(group.name)] if (find_conf_directory() / group.name).is_dir() else [])
    )


def _key_table(prefix: str, fields: "list[dataclasses.Field[Any]]", defaults: dict[str, Any]) -> str:
    rows = ["| Key | Type | Default | |", "| --- | --- | --- | --- |"]
    for name, field, value in _leaves(prefix, fields, defaults):
        default = json.dumps(value, ensure_ascii=False)
        help_text = field.metadata["help"]
        rows.append(f"| `{name}`{{ #{name} }} | {_values(field.type)} | `{_cell(default)}` | {_cell(help_text)} |")
    return "\n".join(rows) + "\n"


def _leaves(
    prefix: str, fields: "Iterable[dataclasses.Field[Any]]", defaults: dict[str, Any]
) -> Iterator[tuple[str, "dataclasses.Field[Any]", Any]]:
    """Yield the full name, field and default of each key, including nested keys."""
    for field in fields:
        name = f"{prefix}{field.name}"
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            yield from _leaves(f"{name}.", dataclasses.fields(field.type), defaults[field.name])
        else:
            yield name, field, defaults[field.name]


def _cell(text: str) -> str:
    """Return text without characters that end a table's cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def _choices(group: str) -> str:
    """Return a list of the files of a group, each with its first comment."""
    files = sorted((find_conf_directory() / group).glob("*.yaml"))
    return "Choices:\n\n" + "\n".join(f"- `{file.stem}`{_heading_comment(file)}" for file in files) + "\n"


def _heading_comment(file: Path) -> str:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return f": {' '.join(comment)}" if comment else ""


def _values(annotation: Any) -> str:
    """Return the values of a key in words: its choices, or its type and range, and null."""
    limit = limit_of(annotation)
    if limit is None:
        return yaml_type(annotation)
    null = " or null" if type(None) in typing.get_args(annotation) else ""
    if isinstance(limit, OneOf):
        choices = ", ".join(f"`{choice}`" for choice in limit.choices)
        return f"{choices}{', or your own' if limit.own else ''}{null}"
    return f"{yaml_type(annotation).removesuffix(' or null')}, {limit}{null and f',{null}'}"


def yaml_type(annotation: Any) -> str:
    """Return a type in the words of a YAML file: `int | None` is "integer or null"."""
    arguments = typing.get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return yaml_type(arguments[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(yaml_type(argument) for argument in arguments)
    origin = typing.get_origin(annotation)
    if origin is list:
        return f"list of {yaml_type(arguments[0])}"
    if origin is dict:
        return "mapping"
    return YAML_TYPES[annotation]


def _default_values(program: str) -> dict[str, Any]:
    register_schema()
    with initialize_config_dir(str(find_conf_directory()), version_base=None):
        values = OmegaConf.to_container(compose(program))
    assert isinstance(values, dict)
    return {str(name): value for name, value in values.items()}


def _root_command() -> click.Command:
    groups = (value for value in vars(cli).values() if isinstance(value, click.Group))
    return next(groups, click.Group("agent-tunix"))


def _doc_of(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _command_sections(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    settings = {**command.context_settings, "terminal_width": 100}
    context = click.Context(command, info_name=path.split()[-1], parent=parent, **settings)
    yield f"## {path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None and not subcommand.hidden:
                yield from _command_sections(subcommand, f"{path} {name}", context)


def _other_names() -> str:
    """Return the Markdown of the settings of other libraries: the key that each has here, or why it has none."""
    rows = [f"| `{name}` | `{key}` | {remark} |" for name, (key, remark) in sorted(OTHER_NAMES.items())]
    rows += [f"| `{name.replace('*', '…')}` | | {reason} |" for name, reason in sorted(WITHOUT_KEY.items())]
    return "\n".join([OTHER_NAMES_INTRO, "| There | Here | Remark |", "| --- | --- | --- |", *rows, ""])


def _trl_fields() -> str:
    """Return the table of the fields of TRL's `GRPOConfig`."""
    rows = ["| Field | Default | Here | |", "| --- | --- | --- | --- |"]
    for name, field in FIELDS.items():
        here = f"`{field.target}`" if field.kind == MAPPED else field.kind
        note = f"in TRL it {field.target}; {field.note}" if field.kind == REFUSED else field.note
        rows.append(f"| `{name}` | `{field.default!r}` | {here} | {_cell(note)} |")
    return "\n".join([TRL_INTRO, *rows, ""])


def errors_page() -> str:
    """Return the page of error classes and their codes, each with a message."""
    examples = examples_by_code()
    parts = [ERRORS_INTRO]
    for name, kind in classes().items():
        if examples[name]:
            rows = [f"| `{code}` | {_message(text)} |" for code, text in sorted(examples[name].items())]
            parts.append(
                "\n".join([f"## {name}", "", _doc_of(kind), "", "| code | for example |", "| --- | --- |", *rows])
            )
    return "\n\n".join(parts) + "\n"


def _message(text: str) -> str:
    """Return a message as the text of a cell, in which nothing is markup."""
    return re.sub(r"([\\`*_|{}\[\]<>#])", r"\\\1", " ".join(text.split()))


def _api_page(describe: Callable[[str], str]) -> str:
    """Return the page of the public names of the packages for authors, each described by a function."""
    parts = (f"## agent_tunix.{package}\n\n{describe(package)}" for package in API_PACKAGES)
    return "\n\n".join([API_INTRO, *parts])


PAGES = {
    "configuration": configuration_page,
    "commands": commands_page,
    "builtins": builtins_page,
    "errors": errors_page,
}


# --- the checkout -----------------------------------------------------------------------------------------------------

_DIRECTORY = Path(__file__).parents[1] / "docs" / "reference"
_GENERATED = "<!-- Written by scripts/generate_reference.py; change the code instead. -->\n"


def pages_of_checkout() -> dict[Path, str]:
    """Return the pages of `docs/reference` by file: plain Markdown, without the anchors that only MkDocs reads."""
    texts = {name: re.sub(r" ?\{ #[^}]+ \}", "", page()) for name, page in PAGES.items()}
    texts["api"] = _api_page(lambda package: api_section(f"agent_tunix.{package}"))
    return {
        _DIRECTORY / f"{name}.md": f"{_GENERATED}{text.strip()}\n".replace("\u00a0", " ")
        for name, text in texts.items()
    }


def outdated_pages() -> list[Path]:
    """Return the pages of `docs/reference` that differ from the code."""
    return [file for file, text in pages_of_checkout().items() if not file.is_file() or file.read_text("utf-8") != text]


def main(arguments: list[str]) -> int:
    """Write the pages of the checkout, or check them; return the exit status."""
    outdated = outdated_pages()
    if arguments == ["--check"]:
        for file in outdated:
            print(f"{file} is outdated; run python scripts/generate_reference.py", file=sys.stderr)
        return 1 if outdated else 0
    if arguments:
        print("usage: generate_reference.py [--check]", file=sys.stderr)
        return 2
    texts = pages_of_checkout()
    for file in outdated:
        file.write_text(texts[file], encoding="utf-8")
        print(f"wrote {file}")
    return 0


# --- MkDocs' hooks ----------------------------------------------------------------------------------------------------


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    of_site = {name: page() for name, page in PAGES.items()}
    of_site["api"] = _api_page(lambda package: _OF_SITE.format(name=package))
    for name, text in of_site.items():
        # The page of the checkout has no anchors for MkDocs.
        if (in_checkout := files.get_file_from_path(f"reference/{name}.md")) is not None:
            files.remove(in_checkout)
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_post_build(*, config: MkDocsConfig) -> None:
    """Reject a site that loads a script, style, font or picture from another host."""
    site = Path(config.site_dir)
    pages, styles = sorted(site.rglob("*.html")), sorted(site.rglob("*.css"))
    remote = [f"{page.relative_to(site)}: {url}" for page in pages for url in remote_assets(page)]
    remote += [str(style.relative_to(site)) for style in styles if "url(http" in style.read_text(encoding="utf-8")]
    if remote:
        raise PluginError("the site must load nothing from the network:\n" + "\n".join(remote))


def remote_assets(page: Path) -> list[str]:
    """Return the addresses outside the site that a browser would fetch on opening a page."""
    finder = _AssetFinder()
    finder.feed(page.read_text(encoding="utf-8"))
    return [url for url in finder.urls if url.startswith(("http:", "https:", "//"))]


class _AssetFinder(HTMLParser):
    """Collector of the addresses that a page loads. Links to follow (`<a>`, canonical) do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag != "a" and values.get("src"):
            self.urls.append(values["src"] or "")
        if tag == "link" and values.get("rel") not in {"canonical", "next", "prev"}:
            self.urls.append(values.get("href") or "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
