"""What holds for the package as a whole: what importing it loads, what it exports, and that no key is idle."""

import ast
import dataclasses
import functools
import importlib
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from agent_tunix.config.compose import find_conf_directory
from agent_tunix.config.schema import Config, EvaluateConfig
from tests.tiers import slow_after

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "agent_tunix"
CONF = find_conf_directory()

# What each package promises to its users. A name added or removed here is a line in the changelog.
EXPORTS: dict[str, str] = {
    "agent_tunix": """
        Callback Outcome Run Sample Score TrainingState __version__ get_reward_function list_reward_functions
        normalize_reward open_run prefer register_advantage_estimator register_policy_loss register_reward_function sft
        train
    """,
    "agent_tunix.api": "Callback Run TrainingState open_run prefer sft train",
    "agent_tunix.data": """
        BatchOrder Dropped Example Interleaving LoadReport LoadedSplit Order PromptEncoder PromptTokenizer RowError
        SET_COLUMN count_steps draw_few_shot endless few_shot_messages filter_over_long is_held_out iter_examples
        load_evaluation load_examples load_splits make_order make_problem messages_for nothing_left peek_example
        peek_examples peek_held_out read_problems set_seeds shown_problems shuffle_within
    """,
    "agent_tunix.environments": """
        AgentRecord CallFault CallOutcome CallRecord CallResult EnvironmentAdapter EnvironmentRecipe EnvironmentTraits
        EpisodeEnvironment EpisodeResult FunctionTool MalformedCall Message ParsedTurn PolicyCall Reply SchemaTool
        StopReason Tool ToolCall ToolCallFormat ToolsEnvironment UnreadCall adapt_environment format_of_template
        list_registered parse_turn register_environment register_tool render_calls render_declarations
        resolve_environment run_episode
    """,
    "agent_tunix.grpo.losses": """
        AGGREGATIONS KL_ESTIMATORS LOSSES LossBatch ObjectiveSettings TokenLosses aggregate completion_weights
        log_ratios policy_objective token_ratios
    """,
    "agent_tunix.rewards": """
        BadReferenceError BaseReward Component EpisodeSummary Fingerprint Mixture Outcome RewardAnalysis RewardConfig
        RewardRecipe
        Sample Score Term compute_advantages compute_group_advantages extract_answer fingerprint get_builtin
        get_reward_function list_reward_functions normalize_reward register_advantage_estimator
        register_reward_function resolve_reward
        settle_completions summarise to_trl
    """,
    "agent_tunix.workbench.checks": """
        Budget Calibration Case CasesReport CheckFinding CheckProblem CheckReport Kind LabelledCompletion Status
        calibrate check_reward find_misjudged generate_completions kind_of load_cases range_of run_case
        run_cases wilson_interval
    """,
    "agent_tunix.rewards.execution": "ExecutionSettings Executor Job Runner make_runner",
    "agent_tunix.execution.isolation": """
        library_paths lock module_directories problems require_isolation standard_paths
    """,
    "agent_tunix.execution.sandbox": "ProgramRun run_program",
    "agent_tunix.workbench.diagnosis": "NAMES ComponentContext Finding RolloutView RunContext Severity Watch diagnose",
    "agent_tunix.tracking": """
        FindingsFile Recorder RunLog StoredRun compare_ends missing_steps read_findings read_rows summary_table
    """,
    "agent_tunix.tracking.rollouts": "Opaque RolloutReader RolloutWriter ScoringSettings StoredStep",
}


@pytest.mark.parametrize(
    ("module", "unloaded"),
    slow_after(
        5,
        [
            ("agent_tunix", ["jax", "flax", "tunix", "tensorflow", "transformers", "hydra", "omegaconf", "pyarrow"]),
            ("agent_tunix.config.compose", ["jax", "flax", "tunix", "tensorflow", "transformers"]),
            (
                "agent_tunix.cli",
                ["jax", "flax", "tunix", "tensorflow", "transformers", "pyarrow", "sqlalchemy", "httpx"],
            ),
            ("agent_tunix.tracking", ["jax", "flax", "tunix", "tensorflow", "transformers", "hydra", "pyarrow"]),
            ("agent_tunix.rewards", ["jax", "flax", "tunix", "tensorflow", "transformers", "tokenizers", "hydra"]),
            (
                "agent_tunix.environments",
                ["jax", "flax", "tensorflow", "transformers", "hydra", "pydantic", "docstring_parser"],
            ),
            ("agent_tunix.errors", ["jax", "flax", "tunix", "tensorflow", "transformers", "hydra", "omegaconf"]),
            ("agent_tunix.config.schema", ["jax", "flax", "tunix", "tensorflow", "transformers", "hydra", "omegaconf"]),
            ("agent_tunix.execution.workers.nursery", ["jax", "flax", "tunix", "hydra", "ray"]),
            ("agent_tunix.data.generated.word_problems", ["jax", "hydra", "transformers"]),
            ("agent_tunix.store.access", ["sqlalchemy", "alembic", "psycopg", "httpx", "fastapi", "jax"]),
        ],
    ),
)
def test_importing_leaves_heavy_libraries_unloaded(module: str, unloaded: list[str]) -> None:
    program = f"import sys, {module}; print(*sorted(set({unloaded!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


@pytest.mark.parametrize("package", EXPORTS)
def test_exports_are_pinned(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(EXPORTS[package].split())
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_every_schema_key_is_read() -> None:
    idle = unread_keys()
    assert idle == [], f"read these keys or drop them from the schema: {', '.join(idle)}"


def keys_by_group() -> dict[str, list[str]]:
    """Dotted keys of each group of the schema; those of the top level, and of `evaluate.py`, under ""."""
    keys: dict[str, list[str]] = {"": [field.name for field in dataclasses.fields(EvaluateConfig)]}
    for field in dataclasses.fields(Config):
        if dataclasses.is_dataclass(field.type):
            keys[field.name] = [f"{field.name}.{key.name}" for key in dataclasses.fields(field.type)]
            for key in dataclasses.fields(field.type):
                if dataclasses.is_dataclass(key.type):
                    keys[key.name] = [f"{key.name}.{inner.name}" for inner in dataclasses.fields(key.type)]
        else:
            keys[""].append(field.name)
    return keys


@functools.cache
def source() -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))}


def unread_keys() -> list[str]:
    """Keys of the schema that no module, besides the schema itself, reads as an attribute.

    `x.grpo.beta` reads grpo.beta. So does `y.beta`, whatever `y` is, unless `y` is itself the name of another group:
    a function may have been handed its group alone, under any name.
    """
    groups = keys_by_group()
    unread = {(group, key.rpartition(".")[2]): key for group, keys in groups.items() for key in keys}
    for file, text in source().items():
        # Only files that could read a key are parsed, which takes long.
        if file.name != "schema.py" and any(f".{leaf}" in text for _, leaf in unread):
            for owner, name in attribute_reads(text):
                for group in [owner] if owner in groups else groups:
                    unread.pop((group, name), None)
    return list(unread.values())


def attribute_reads(text: str) -> Iterator[tuple[str, str]]:
    """`(owner, name)` of every attribute that a module reads: `a.b.c` gives ("b", "c") and ("a", "b")."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield owner_name(node.value), node.attr


def owner_name(node: ast.expr) -> str:
    """The last name of the expression whose attribute is read; "?" for a call or subscript."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return "?"


# The house.

MOST_MODULES = 20


@pytest.fixture(scope="module")
def imports() -> dict[str, list[str]]:
    """Return the modules that each module imports, also inside functions and for types alone."""
    graph = grimp.build_graph("agent_tunix", cache_dir=None)
    return {name: sorted(graph.find_modules_directly_imported_by(name)) for name in graph.modules}


def test_no_modules_import_each_other(imports: dict[str, list[str]]) -> None:
    """Modules that import nothing left are taken away again and again; what remains is in a circle or above one."""
    left = dict(imports)
    while free := [name for name, needed in left.items() if not any(other in left for other in needed)]:
        for name in free:
            del left[name]
    assert not left


def test_no_package_has_too_many_modules(imports: dict[str, list[str]]) -> None:
    packages = {name.rpartition(".")[0] for name in imports}
    sizes = Counter(name.rpartition(".")[0] for name in imports.keys() - packages)
    assert {package: size for package, size in sizes.items() if size > MOST_MODULES} == {}


def test_no_two_public_classes_share_a_name() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file, text in source().items():
        for name in re.findall(r"^ *class ([A-Za-z]\w*)[(:]", text, re.MULTILINE):
            found[name].append(str(file.relative_to(PACKAGE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
