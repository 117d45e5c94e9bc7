"""Every place that unpickles, evaluates, imports by a name or resolves interpolation, each with its reason.

A new one fails the test. Before it is added to the table, say who decides what it reads or runs: text of a model, of an
upload or of somebody else's run must never reach it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "agent_tunix"

# Calls by the last parts of their names, whatever the module was imported as.
UNPICKLING = {"pickle.load", "pickle.loads", "pickle.Unpickler", "joblib.load", "torch.load", "cloudpickle.load"} | {
    *("cloudpickle.loads", "dill.load", "dill.loads", "marshal.load", "marshal.loads", "shelve.open"),
    *("serialize_executable.deserialize_and_load", "pandas.read_pickle", "Unpickler.load"),
    # What libraries read may name code, or hold pickles.
    *("from_pretrained", "load_dataset", "load_dataset_builder", "load_from_disk", "tfds.builder", "tfds.load"),
    *("builder_from_directory", "tensorflow_datasets.builder", "tensorflow_datasets.load"),
}
EVALUATING = {"eval", "exec", "compile", "__import__", "runpy.run_path", "runpy.run_module", "types.FunctionType"} | {
    *("from_string", "get_template", "source_to_code", "InteractiveInterpreter", "code.interact"),
}
IMPORTING = {"import_module", "spec_from_file_location", "module_from_spec", "exec_module", "entry_points"} | {
    *("SourceFileLoader", "find_spec", "load_module", "pkg_resources.iter_entry_points"),
    *("ExtensionFileLoader", "zipimporter", "resolve_name", "pydoc.locate"),
    *("ctypes.CDLL", "ctypes.PyDLL", "LoadLibrary"),
}
RESOLVING = {"OmegaConf.to_object", "OmegaConf.resolve", "OmegaConf.register_new_resolver", "OmegaConf.load"} | {
    *("OmegaConf.create", "OmegaConf.to_container", "instantiate", "get_class", "get_method", "get_object"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.safe_load", "compose", "hydra.main"),
    *("expandvars", "dotenv_values", "load_dotenv"),
}
# What turns a configuration into code that runs: every caller must have asked `settle_trust` where a run names it.
FROM_A_CONFIGURATION = {"resolve_from_config", "resolve_correct", "resolve_for_evaluation", "preflight"}
WATCHED = UNPICKLING | EVALUATING | IMPORTING | RESOLVING | FROM_A_CONFIGURATION
# A module without any of these words uses none, and is not parsed, which takes long.
WORDS = re.compile(rf"\b({'|'.join(sorted(name.rpartition('.')[2] for name in WATCHED))}|allow_pickle)\b")

OWN_PROCESS = "frames between this program's own processes, written by the parent"
REWARD_OF_USER = "the user's own reward, or one that `settle_trust` let through"
SHIPPED = "a module of this package, by a table of this package"

ALLOWED: dict[tuple[str, str], tuple[int, str]] = {
    # --- the user's own command line and configuration
    ("cli/hydra_programs.py", "hydra.main"): (1, "composes the user's command line over `conf/`"),
    ("cli/hydra_programs.py", "preflight"): (2, "the configuration that the user composed, to train"),
    ("cli/plans.py", "preflight"): (1, "the configuration that the user composed, to plan"),
    ("cli/rewards/commands.py", "import_module"): (1, "`--module` of the command line"),
    ("cli/rewards/options.py", "yaml.safe_load"): (1, "a value of the command line"),
    ("config/compose.py", "OmegaConf.to_container"): (2, "without resolving"),
    ("config/compose.py", "OmegaConf.to_object"): (1, "resolves what the user composed; values of a run are escaped"),
    ("config/compose.py", "compose"): (1, "composes the user's overrides over `conf/`"),
    ("cli/working_directory.py", "dotenv_values"): (1, "`.env`; names that decide whose code runs are refused"),
    ("cli/environments/commands.py", "import_module"): (1, "`--module` of the command line"),
    ("cli/environments/commands.py", "yaml.safe_load"): (1, "a value of the command line"),
    # --- runs of others
    ("plain_yaml.py", "yaml.load"): (1, "a subclass of the safe loader, after tags and aliases were refused"),
    ("cli/rewards/stored.py", "resolve_from_config"): (1, "asks settle_trust before"),
    ("evaluation/request.py", "resolve_for_evaluation"): (1, "asks settle_trust before"),
    ("training/generation.py", "resolve_from_config"): (1, "its one caller, cli/generate.py, asks settle_trust before"),
    ("runs/stored_rewards.py", "resolve_from_config"): (1, "its one caller, `replay`, asks settle_trust before"),
    ("runs/preflight.py", "resolve_from_config"): (2, "as preflight and resolve_for_evaluation were called"),
    ("runs/preflight.py", "resolve_correct"): (2, "as preflight and resolve_for_evaluation were called"),
    ("rewards/code_parts.py", "find_spec"): (1, "of a name without a dot, which imports nothing"),
    ("data/sources/tfds.py", "find_spec"): (1, "settle_trust asks before a run's dataset of this source is read"),
    ("data/sources/tfds.py", "import_module"): (1, "settle_trust asks before a run's dataset of this source is read"),
    ("data/sources/tfds.py", "builder_from_directory"): (1, "as above"),
    ("data/sources/tfds.py", "tensorflow_datasets.builder"): (1, "as above"),
    ("data/sources/huggingface.py", "load_from_disk"): (1, "Arrow files; no program of the dataset's is run"),
    ("data/sources/huggingface.py", "load_dataset_builder"): (
        1,
        "no program of the dataset's is run, no file elsewhere",
    ),
    # --- rewards: REWARD_OF_USER
    ("rewards/loading.py", "exec_module"): (1, REWARD_OF_USER),
    ("rewards/loading.py", "find_spec"): (1, "of a name without a dot, which imports nothing"),
    ("rewards/loading.py", "import_module"): (2, f"{REWARD_OF_USER}; {SHIPPED}"),
    ("rewards/sources.py", "ExtensionFileLoader"): (1, REWARD_OF_USER),
    ("rewards/sources.py", "SourceFileLoader"): (1, REWARD_OF_USER),
    ("rewards/sources.py", "find_spec"): (1, REWARD_OF_USER),
    ("rewards/sources.py", "source_to_code"): (1, REWARD_OF_USER),
    ("rewards/sources.py", "spec_from_file_location"): (1, REWARD_OF_USER),
    ("rewards/importable/agent_tunix_files.py", "SourceFileLoader"): (2, REWARD_OF_USER),
    ("rewards/importable/agent_tunix_files.py", "exec_module"): (2, REWARD_OF_USER),
    ("rewards/importable/agent_tunix_files.py", "source_to_code"): (1, REWARD_OF_USER),
    ("rewards/conventions/libraries/rubrics.py", "compile"): (3, REWARD_OF_USER),
    ("rewards/conventions/libraries/rubrics.py", "eval"): (2, REWARD_OF_USER),
    ("rewards/conventions/libraries/rubrics.py", "exec"): (1, REWARD_OF_USER),
    ("rewards/unavailable.py", "__import__"): (2, "the import that the reward itself makes, passed on"),
    ("rewards/fingerprint/behaviour.py", "types.FunctionType"): (5, "asks whether something is a function"),
    ("rewards/loading.py", "module_from_spec"): (1, REWARD_OF_USER),
    ("rewards/conventions/classes.py", "types.FunctionType"): (1, "asks whether something is a function"),
    ("rewards/reward_model/program.py", "from_pretrained"): (3, "asked about as `reward_model`; in its own process"),
    ("rewards/execution/worker.py", "import_module"): (2, f"{REWARD_OF_USER}; the library of a built-in"),
    ("rewards/resolve.py", "import_module"): (1, REWARD_OF_USER),
    ("workbench/checks/cases.py", "yaml.load"): (1, "a table of cases, by a subclass of the safe loader"),
    ("rewards/registry.py", "entry_points"): (1, "rewards of packages that the user installed"),
    ("rewards/registry.py", "import_module"): (1, SHIPPED),
    ("rewards/shims.py", "import_module"): (1, SHIPPED),
    ("rewards/judges/__init__.py", "import_module"): (1, SHIPPED),
    ("rewards/judges/base.py", "find_spec"): (1, "asks whether an extra is installed"),
    ("rewards/reward_model/__init__.py", "import_module"): (1, SHIPPED),
    ("rewards/reward_model/settings.py", "find_spec"): (1, "asks whether torch is installed"),
    ("cli/rewards/pages.py", "find_spec"): (1, "asks whether an extra is installed"),
    ("cli/rewards/pages.py", "import_module"): (1, SHIPPED),
    # --- environments, which only the command line and Python code of the user's name
    ("environments/registry.py", "import_module"): (1, SHIPPED),
    ("environments/resolve.py", "import_module"): (2, "a module or file that the user names"),
    # --- between processes
    ("rewards/conventions/classes.py", "pickle.loads"): (2, "a reward of the user's own, sent to its own worker"),
    ("execution/workers/nursery.py", "pickle.loads"): (1, OWN_PROCESS),
    ("execution/workers/worker.py", "pickle.loads"): (1, OWN_PROCESS),
    ("execution/workers/frames.py", "pickle.Unpickler"): (1, "refuses every class: only built-in containers, numbers"),
    ("execution/workers/process.py", "pickle.loads"): (1, OWN_PROCESS),
    ("rewards/execution/worker.py", "pickle.loads"): (1, OWN_PROCESS),
    # --- isolated processes
    ("execution/sandbox/names.py", "compile"): (1, "parses a test of the user's dataset, and runs nothing"),
    ("execution/sandbox/child.py", "compile"): (1, "a program of the model's, in its sandbox"),
    ("execution/sandbox/defined_tests.py", "compile"): (3, "tests of the dataset, in the sandbox"),
    ("execution/sandbox/defined_tests.py", "exec"): (1, "tests of the dataset, in the sandbox"),
    ("execution/sandbox/defined_tests.py", "types.FunctionType"): (1, "asks whether something is a function"),
    ("execution/sandbox/child.py", "exec"): (1, "a program of the model's, in its sandbox"),
    ("execution/sandbox/child.py", "import_module"): (1, "a side of the sandbox by a fixed table"),
    ("execution/sandbox/evaluated_text.py", "compile"): (2, "in the sandbox, to a tree that is only looked at"),
    ("execution/sandbox/library.py", "__import__"): (1, "in the sandbox, a module of the standard library"),
    ("execution/sandbox/child.py", "marshal.load"): (1, OWN_PROCESS),
    ("execution/sandbox/program.py", "import_module"): (2, "in the sandbox, where the program may import anything"),
    ("execution/sandbox/checker.py", "types.FunctionType"): (1, "asks whether something is a function"),
    ("rewards/uploaded/program.py", "compile"): (1, "an upload, in its isolated process"),
    ("rewards/uploaded/source.py", "compile"): (1, "an upload, in its isolated process"),
    ("rewards/uploaded/source.py", "exec"): (1, "an upload, in its isolated process"),
    ("rewards/uploaded/source.py", "types.FunctionType"): (1, "code of ours, with the signature of an upload"),
    # --- templates and compiled programs
    ("policy/chat/limited_jinja.py", "from_string"): (1, "a model's chat template, in Jinja's sandbox, with limits"),
    ("tracking/report/page.py", "from_string"): (1, SHIPPED),
    ("service/inspector/pages.py", "get_template"): (1, SHIPPED),
    # --- libraries
    ("execution/isolation/kernel.py", "ctypes.CDLL"): (1, "the C library, which is loaded already"),
    ("execution/workers/linux.py", "ctypes.CDLL"): (1, "as above"),
    ("distributed/loss.py", "ctypes.CDLL"): (1, "as above"),
    ("startup/devices.py", "entry_points"): (1, "asks whether a plugin of JAX is installed"),
    ("startup/devices.py", "find_spec"): (2, "asks whether a library is installed"),
    ("proxies.py", "find_spec"): (1, "asks whether socksio is installed"),
    ("distributed/joining.py", "find_spec"): (1, "asks whether mpi4py is installed"),
}


def dotted(node: ast.expr) -> str:
    """Return the dotted name that an expression is; it begins with a dot where no name begins it."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    parts.insert(0, node.id if isinstance(node, ast.Name) else "")
    return ".".join(parts)


def watched_names(tree: ast.AST) -> Iterator[str]:
    """Yield the watched name of each use: a call, a base of a class, or a function that is handed on."""
    aliases = {}
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                aliases[name.asname or name.name] = f"{node.module}.{name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                aliases[name.asname or name.name] = name.name
        elif isinstance(node, ast.Attribute):
            inner.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load) and node not in inner:
            yield from _watched(dotted(node), aliases)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("load"):
            yield from ("allow_pickle" for keyword in node.keywords if keyword.arg == "allow_pickle")


def _watched(name: str, aliases: dict[str, str]) -> Iterator[str]:
    first, dot, rest = name.partition(".")
    whole = (aliases.get(first, first) + dot + rest).removeprefix("builtins.")
    ends = {".".join(whole.split(".")[-count:]) for count in (1, 2)}
    # `re.compile` and methods such as `lowered.compile` or `model.eval` evaluate no text.
    ends -= {"compile", "eval", "exec", "load_module"} if "." in whole else set()
    yield from sorted(ends & WATCHED)[:1]


def found_in_source() -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if WORDS.search(text):
            found.update((file.relative_to(SOURCE).as_posix(), name) for name in watched_names(ast.parse(text)))
    return found


def test_every_place_that_runs_or_reads_what_could_be_anothers_is_listed() -> None:
    found = found_in_source()
    listed = Counter({place: count for place, (count, _) in ALLOWED.items()})
    assert found - listed == Counter(), "a place that is not listed here: say who decides what it reads or runs"
    assert listed - found == Counter(), "a place that is listed here is gone: remove it from the table"
