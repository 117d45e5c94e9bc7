"""What README and docs/ show is run as a reader would run it.

Each page has a directory of its own, in which its blocks run in order. What happens follows from a block's language:

- `python` blocks are executed, those of a page in one namespace; one with a `title="file.py"` is written to that file;
- `bash` blocks are run as they stand and must succeed;
- `console` blocks hold commands after `$ ` and the lines they must print, `…` standing for any text;
- `yaml` and `json` blocks are parsed; `text` is for reading.

A comment on the line before a fence says why a block is not run: `<!-- network -->`, `<!-- cluster -->`,
`<!-- tpu -->`, `<!-- install … -->` (CI runs these), `<!-- proof -->` (a long run that another test makes),
`<!-- server -->` (tests/service/test_documented_calls.py runs them against servers). Its syntax is still checked, and
the overrides of its commands are composed.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from agent_tunix.config.compose import find_conf_directory, register_schema
from agent_tunix.rewards.builtin import BUILTINS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REASONS_NOT_TO_RUN = {"network", "cluster", "tpu", "install", "proof", "server"}
LANGUAGES = {"python", "bash", "console", "yaml", "json", "text"}
TRAINING_COMMANDS = (
    ["python", "run_training.py"],
    ["agent-tunix", "train"],
    ["agent-tunix", "sft"],
    ["agent-tunix", "verify-resume"],
)
BLOCK_TIMEOUT_S = 600

FENCE = re.compile(r"(?P<indent> *)```(?P<info>.*)")
COMMENT = re.compile(r" *<!-- (?P<word>\w+).*-->")
TITLE = re.compile(r'title="(?P<title>[^"]+)"')


# --- reading a page --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: First word after the fence.
        code: The lines between the fences, dedented.
        line: Number of the first of these lines in the page, from 1.
        title: File that the block shows; "" for none.
        reason_not_to_run: Word of the comment before the fence; "" for none.
    """

    language: str
    code: str
    line: int
    title: str = ""
    reason_not_to_run: str = ""


def read_blocks(page: Path) -> list[Block]:
    blocks: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    opening: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        if not (fence := FENCE.fullmatch(line)):
            continue
        if opening is None:
            opening = (number, fence["info"].strip())
            continue
        start, info = opening
        comment = COMMENT.fullmatch(lines[start - 1]) if start else None
        title = TITLE.search(info)
        blocks.append(
            Block(
                language=info.split()[0] if info else "",
                code=textwrap.dedent("\n".join(lines[start + 1 : number])) + "\n",
                line=start + 2,
                title=title["title"] if title else "",
                reason_not_to_run=comment["word"] if comment else "",
            )
        )
        opening = None
    assert opening is None, f"{page}:{(opening or (0,))[0] + 1}: the fence is not closed"
    return blocks


def shell_commands(block: Block) -> list[str]:
    """Commands of a `bash` or `console` block, continued lines joined."""
    if block.language == "bash":
        return block.code.replace("\\\n", " ").splitlines()
    return [line[2:] for line in block.code.splitlines() if line.startswith("$ ")]


ALL_BLOCKS = {f"{page.relative_to(ROOT)}:{block.line}": block for page in PAGES for block in read_blocks(page)}
NOT_RUN = {place: block for place, block in ALL_BLOCKS.items() if block.reason_not_to_run}


# --- every block, run or not -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", ALL_BLOCKS.values(), ids=ALL_BLOCKS)
def test_block_is_well_formed(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.reason_not_to_run in REASONS_NOT_TO_RUN | {""}
    match block.language:
        case "python":
            compile(block.code, "block", "exec")
        case "yaml":
            yaml.safe_load(block.code)
        case "json":
            json.loads(block.code)
        case "bash" | "console":
            for command in shell_commands(block):
                subprocess.run(["bash", "-n", "-c", command], check=True)


@pytest.mark.parametrize("block", NOT_RUN.values(), ids=NOT_RUN)
def test_overrides_of_a_block_that_is_not_run_compose(block: Block) -> None:
    check_overrides(block)


def check_overrides(block: Block) -> None:
    register_schema()
    for command in shell_commands(block):
        for overrides in training_overrides(command):
            with initialize_config_dir(str(find_conf_directory()), version_base=None):
                compose("config", overrides)


def training_overrides(line: str) -> Iterator[list[str]]:
    """Hydra overrides of each training command in a line of shell; of a sweep, those of its first job."""
    words = shlex.split(line, comments=True)
    for is_joint, group in itertools.groupby(words, key={"&&", "||", ";", "|"}.__contains__):
        command = list(group)
        program, arguments = command[:2], command[2:]
        if not is_joint and program in TRAINING_COMMANDS:
            # Those of Hydra's own launchers are known where these are installed.
            overrides = [argument for argument in arguments if not re.match(r"--|\+?hydra[./]", argument)]
            is_sweep = "--multirun" in arguments
            yield [override.partition(",")[0] if is_sweep else override for override in overrides]


# --- the pages, run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page: Path, tmp_path: Path) -> None:
    for script in ("run_training.py", "evaluate.py"):
        (tmp_path / script).symlink_to(ROOT / script)
    run_blocks([block for block in read_blocks(page) if not block.reason_not_to_run], tmp_path)


def run_blocks(blocks: list[Block], directory: Path) -> None:
    for index, block in enumerate(blocks):
        if block.title:
            (directory / block.title).parent.mkdir(parents=True, exist_ok=True)
            (directory / block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python" and not is_python(blocks[index + 1 : index + 2]):
            run(sys.executable, "-c", namespace_so_far(blocks[: index + 1]), directory=directory)
        elif block.language == "bash":
            run("bash", "-euo", "pipefail", "-c", block.code, directory=directory)
        elif block.language == "console":
            run_console(block, directory)


def is_python(following: list[Block]) -> bool:
    return any(block.language == "python" and not block.title for block in following)


def namespace_so_far(blocks: list[Block]) -> str:
    """One program of a page's Python blocks, each at its line in the page, so that a traceback points there."""
    program: list[str] = []
    for block in blocks:
        if is_python([block]):
            program += [""] * (block.line - 1 - len(program)) + block.code.splitlines()
    return "\n".join(program)


def run_console(block: Block, directory: Path) -> None:
    for session in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, expected = session.partition("\n")
        printed = run("bash", "-c", command, directory=directory, may_fail=bool(expected.strip()))
        pattern = ".*".join(re.escape(part.strip()) for part in re.split(r"…|\n", expected))
        assert re.search(pattern, printed, flags=re.DOTALL), f"{command}\nprinted\n{printed}\nand not\n{expected}"


def run(*command: str, directory: Path, may_fail: bool = False) -> str:
    """What a command prints, errors included, with this environment's programs first on the path."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BLOCK_TIMEOUT_S,
    )
    assert may_fail or result.returncode == 0, f"{command[-1]}\nended with {result.returncode}:\n{result.stdout}"
    return result.stdout


# --- the harness itself ----------------------------------------------------------------------------------------------


def test_blocks_of_a_page_share_a_namespace_and_a_directory(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="greeting.py"\nword = "hello"\n```\n\n```python\nimport greeting\n```\n\n'
        "```bash\necho there > place\n```\n\n<!-- network -->\n```bash\ncurl nowhere\n```\n\n"
        "```python\nassert open('place').read() == 'there\\n' and greeting.word == 'hello'\n```\n\n"
        "```console\n$ cat place missing\nthere\n…No such file…\n```\n"
    )
    blocks = read_blocks(page)
    assert [(b.language, b.line, b.reason_not_to_run) for b in blocks][3] == ("bash", 15, "network")
    run_blocks([block for block in blocks if not block.reason_not_to_run], tmp_path)


def test_a_block_that_fails_is_reported_at_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError, match="line 5"):
        run_blocks(read_blocks(page), tmp_path)


def test_console_output_that_differs_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="and not"):
        run_blocks([Block("console", "$ echo one\ntwo\n", 1)], tmp_path)


def test_overrides_are_found_behind_other_commands() -> None:
    line = "pip install x && python run_training.py --multirun seed=0,1 'data.path=a b' # both"
    assert list(training_overrides(line)) == [["seed=0", "data.path=a b"]]


# --- the site --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated_pages() -> dict[str, str]:
    program = (
        "import json, generate_reference as g; print(json.dumps({name: page() for name, page in g.PAGES.items()}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "scripts", capture_output=True, text=True, check=True
    )
    pages: dict[str, str] = json.loads(result.stdout)
    return pages


def test_the_configuration_reference_has_every_group_and_choice(generated_pages: dict[str, str]) -> None:
    page = generated_pages["configuration"]
    assert "`training.reward_function`" in page
    for file in find_conf_directory().glob("*/*.yaml"):
        assert f"\n## {file.parent.name}\n" in page
        assert f"\n- `{file.stem}`" in page


def test_the_page_of_builtins_has_every_builtin_with_its_range(generated_pages: dict[str, str]) -> None:
    for name, builtin in BUILTINS.items():
        assert f"\n### `{name}` " in generated_pages["builtins"]
        assert (
            f"`{name}`](#{name}) | {builtin.kind} | {builtin.low:g} to {builtin.high:g} |"
            in generated_pages["builtins"]
        )


@pytest.mark.parametrize("name", ["configuration", "commands", "builtins"])
def test_examples_of_the_generated_pages_compose(name: str, generated_pages: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / f"{name}.md"
    page.write_text(generated_pages[name], encoding="utf-8")
    for block in read_blocks(page):
        check_overrides(block)


@pytest.mark.parametrize("command", ["train", "evaluate", "generate", "verify-resume", "rewards check"])
def test_the_command_reference_has_every_command(command: str, generated_pages: dict[str, str]) -> None:
    assert f"\n## agent-tunix {command}\n" in generated_pages["commands"]


def test_a_remote_asset_is_found_and_a_link_is_not(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<a href="https://a.org">a</a><script src="https://b.org/x.js"></script><img src="x.png">')
    program = f"import generate_reference as g, pathlib; print(g.remote_assets(pathlib.Path({str(page)!r})))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "scripts", capture_output=True, text=True)
    assert result.stdout.strip() == "['https://b.org/x.js']"


# --- what CI relies on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mark", "ending"), [("main", "training.reward_function=math"), ("test", "-m pytest")])
def test_the_readme_has_its_two_commands(mark: str, ending: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^<!-- install {mark} -->\n```bash\n(.+)\n```$", readme, re.MULTILINE)
    assert found
    assert found[1].endswith(ending)
