"""Run the blocks of README and docs/ as a reader would.

Each page has a directory of its own, in which its blocks run in order. The language of a block decides what is done:

- `python` blocks are executed, those of a page in one namespace; one with a `title="file.py"` is written to that file;
- `bash` blocks are run as they stand and must succeed;
- `console` blocks hold commands after `$ ` and the lines they must print, `…` standing for any text;
- `yaml` and `json` blocks are parsed; `text` is for reading.

Beyond the README, a training command is checked instead of run: its overrides are composed, and its reward, data and
model are checked as they are before JAX is loaded. Where later commands of the page read its run, they are given a copy
of a run that all pages share, unless what they show depends on the settings of their own (`NEEDS_ITS_OWN_RUN`). So is
an evaluation: its run, model, data and reward are checked, and it is run where the page goes on with its results.

A comment on the line before a fence says why a block is not run: `<!-- network -->`, `<!-- cluster -->`,
`<!-- tpu -->`, `<!-- install … -->` (CI runs these), `<!-- proof -->` (a long run that another test makes),
`<!-- server -->` (tests/service/test_documented_calls.py runs them against servers). Its syntax is still checked, and
the overrides of its commands are composed.
"""

import dataclasses
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from agent_tunix.config.compose import find_conf_directory, register_schema, spell_out, to_evaluate
from agent_tunix.config.working_directory import find_own_conf
from agent_tunix.evaluation.request import read_request
from agent_tunix.rewards.builtin import BUILTINS
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.weights.starting_run import compose_start
from agent_tunix.training.preferences.from_rollouts import write_pairs
from agent_tunix.training.preferences.pairs import check_preferences
from agent_tunix.training.targets import check_supervised
from tests.small_run import SMALL_RUN

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW_BEYOND_README = [
    pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if page.parent != ROOT else [])
    for page in PAGES
]
REASONS_NOT_TO_RUN = {"network", "cluster", "tpu", "install", "proof", "server"}
LANGUAGES = {"python", "bash", "console", "yaml", "json", "text", "toml"}
TRAINING_COMMANDS = (
    ["python", "run_training.py"],
    ["agent-tunix", "train"],
    ["agent-tunix", "sft"],
    ["agent-tunix", "prefer"],
    ["agent-tunix", "verify-resume"],
)
# What the command checks after `preflight`.
CHECKS = {"sft": check_supervised, "prefer": check_preferences}
BLOCK_TIMEOUT_S = 600
TRAINING_PROGRAM = re.compile(
    r"(?:\w+=\S+ )*(?:python run_training\.py|agent-tunix (?P<method>train|sft|prefer|verify-resume)) (?P<rest>.*)"
)
EVALUATION_PROGRAM = re.compile(r"(?:python evaluate\.py|agent-tunix evaluate) (?P<rest>.*)")
RUN_DIRECTORY = re.compile(r"hydra\.run\.dir=(\S+)")
RESULTS = re.compile(r"output=(\w+)\.json")
# Commands that are not checked but run: help, sweeps, and a run of which the page shows more than that it exists.
NEEDS_ITS_OWN_RUN = re.compile(r"--(cfg|help|info|multirun)|dir=outputs/short\b")
SHARED_RUN = (
    *SMALL_RUN,
    *("reward=careful_math", "training.num_batches=3", "training.save_interval_steps=2", "model.lora_rank=4"),
    "generation.max_generation_steps=48",  # so that some completions end
    "tracking.report=true",  # an export would draw its pictures
    "hydra.run.dir=outputs/shared",
)

FENCE = re.compile(r"(?P<indent> *)```(?P<info>.*)")
COMMENT = re.compile(r" *<!-- (?P<word>\w+).*-->")
TITLE = re.compile(r'title="(?P<title>[^"]+)"')


@dataclasses.dataclass(frozen=True)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_well_formed(page: Path) -> None:
    for block in read_blocks(page):
        place = f"{page}:{block.line}"
        assert block.language in LANGUAGES, place
        assert block.reason_not_to_run in REASONS_NOT_TO_RUN | {""}, place
        match block.language:
            case "python":
                compile(block.code, place, "exec")
            case "yaml":
                yaml.safe_load(block.code)
            case "json":
                json.loads(block.code)
            case "toml":
                tomllib.loads(block.code)
            case "bash" | "console":
                script = "\n".join(shell_commands(block))
                assert subprocess.run(["bash", "-n", "-c", script]).returncode == 0, place


@pytest.mark.parametrize("page", SLOW_BEYOND_README)
def test_overrides_of_blocks_that_are_not_run_compose(page: Path) -> None:
    for block in read_blocks(page):
        if block.reason_not_to_run:
            check_overrides(block)


def check_overrides(block: Block) -> None:
    register_schema()
    for command in shell_commands(block):
        for overrides in training_overrides(command):
            with initialize_config_dir(str(find_conf_directory()), version_base=None):
                compose("config", spell_out(overrides))


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
            yield [first_value(override) if is_sweep else override for override in overrides]


def first_value(override: str) -> str:
    """The override of the first job of a sweep."""
    return re.split(r",(?![^\[{(]*[\]})])", override)[0]


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that pages share."""
    directory = tmp_path_factory.mktemp("shared")
    run(sys.executable, str(ROOT / "run_training.py"), *SHARED_RUN, directory=directory)
    return directory / "outputs" / "shared"


@pytest.mark.parametrize("page", SLOW_BEYOND_README)
def test_page_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page.parent == ROOT:  # its runs are longer
        request.getfixturevalue("optimized")
    for script in ("run_training.py", "evaluate.py"):
        (tmp_path / script).symlink_to(ROOT / script)
    blocks = [block for block in read_blocks(page) if not block.reason_not_to_run]

    def check(program: str, arguments: list[str], is_used: bool) -> None:
        """Check the overrides of a command; make the run that it would have made."""
        overrides = [argument for argument in arguments if not argument.startswith("hydra.")]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            find_own_conf()
            if program == "evaluate":
                register_schema()
                with initialize_config_dir(str(find_conf_directory()), version_base=None):
                    asked = to_evaluate(compose("evaluate", overrides))
                read_request(asked)
                return
            found = RUN_DIRECTORY.search(" ".join(arguments))
            config = compose_start(overrides)
            if program == "prefer":
                config = write_pairs(config, tmp_path / (found[1] if found else "pairs"), None)
            checked = preflight(config, tmp_path, trains_reward=program not in CHECKS)
            CHECKS.get(program, lambda _: None)(checked)
        if is_used and found:
            shutil.copytree(request.getfixturevalue("shared_run"), tmp_path / found[1], dirs_exist_ok=True)

    run_blocks(blocks, tmp_path, None if page.parent == ROOT else check)


Check = Callable[[str, list[str], bool], None]


def run_blocks(blocks: list[Block], directory: Path, check: Check | None = None) -> None:
    """Run the blocks of a page in order.

    Args:
        blocks: Those to run.
        directory: Where.
        check: Does what there is to do in place of a training command or an evaluation, given the name of the command,
            its arguments and whether the page names its directory again; None: these are run as well.
    """
    for index, block in enumerate(blocks):
        following = blocks[index + 1 :]
        if block.title:
            (directory / block.title).parent.mkdir(parents=True, exist_ok=True)
            (directory / block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python" and not is_python(following[:1]):
            run(sys.executable, "-c", namespace_so_far(blocks[: index + 1]), directory=directory)
        elif block.language == "bash":
            later = "".join(other.code for other in following)
            run_bash(block, directory, later, check)
        elif block.language == "console":
            run_console(block, directory, check)


def run_bash(block: Block, directory: Path, later: str, check: Check | None) -> None:
    commands = shell_commands(block)
    script: list[str] = []
    for index, command in enumerate([*commands, ""]):
        training, evaluation = TRAINING_PROGRAM.fullmatch(command), EVALUATION_PROGRAM.fullmatch(command)
        found = RESULTS.search(command) if evaluation else RUN_DIRECTORY.search(command)
        is_used = found is not None and found[1] in "".join(commands[index + 1 :]) + later
        is_run = is_used if evaluation else NEEDS_ITS_OWN_RUN.search(command)
        checked = None if is_run else training or evaluation
        if ((check and checked) or not command) and script:
            run("bash", "-euo", "pipefail", "-c", "\n".join(script), directory=directory)
            script = []
        if check and checked:
            arguments = shlex.split(checked["rest"].removesuffix("&"), comments=True)
            check("evaluate" if evaluation else checked["method"] or "train", arguments, is_used)
        else:
            script.append(command)


def is_python(following: list[Block]) -> bool:
    return any(block.language == "python" and not block.title for block in following)


def namespace_so_far(blocks: list[Block]) -> str:
    """One program of a page's Python blocks, each at its line in the page, so that a traceback points there."""
    program: list[str] = []
    for block in blocks:
        if is_python([block]):
            program += [""] * (block.line - 1 - len(program)) + block.code.splitlines()
    return "\n".join(program)


def run_console(block: Block, directory: Path, check: Check | None) -> None:
    for session in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, expected = session.partition("\n")
        if check and (training := TRAINING_PROGRAM.fullmatch(command)) and expected.strip() == "…":
            check(training["method"] or "train", shlex.split(training["rest"]), False)
            continue
        printed = run("bash", "-c", command, directory=directory, may_fail=bool(expected.strip()))
        place = 0
        for part in re.split(r"…|\n", expected):
            place = printed.find(part.strip(), place)
            assert place >= 0, f"{command}\nprinted\n{printed}\nand not {part!r} of\n{expected}"
            place += len(part.strip())


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


def test_the_page_of_errors_has_codes_of_classes_and_of_calls(generated_pages: dict[str, str]) -> None:
    page = generated_pages["errors"]
    for code in ("unknown_reward", "directory_taken", "untrusted_run", "invalid_name", "lost_process"):
        assert f"\n| `{code}` | " in page


@pytest.mark.slow
def test_examples_of_the_generated_pages_compose(generated_pages: dict[str, str], tmp_path: Path) -> None:
    for name, text in generated_pages.items():
        page = tmp_path / f"{name}.md"
        page.write_text(text, encoding="utf-8")
        for block in read_blocks(page):
            check_overrides(block)


def test_the_files_that_the_page_for_contributors_names_exist() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "agent_tunix"
    files = {name for name in re.findall(r"[\w/]+\.py", page) if "/" in name}
    assert len(files) > 30
    assert sorted(name for name in files if not (package / name).exists() and not (ROOT / name).exists()) == []
    names = re.findall(r"`([A-Z_]{5,})`", page)
    source = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    assert sorted(name for name in names if not re.search(rf"^{name}\b", source, re.MULTILINE)) == []
