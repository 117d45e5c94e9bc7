"""Long proofs of the whole program, as a table: every seed, every kill, every fast failure.

    python scripts/proofs.py                                # list the proofs
    python scripts/proofs.py "main job, seed 0" "ten kills"
    python scripts/proofs.py --all                          # as `scripts/check --full` does
    python scripts/proofs.py "real model" --model DIR [--torch PYTHON] [--steps 30] [KEY=VALUE ...]

Results are kept in `.check/proofs.json` under a hash of `src/`, `conf/` and this file. A proof that held is not
repeated until the code changes, so an interrupted call resumes. The exit status is 1 if a proof failed.

"real model" trains any pretrained Hugging Face directory with LoRA on the shipped word problems. It compares token ids,
logits and greedy completions with transformers. It prints reward and held-out accuracy before and after, and the time
of a step of agent_tunix and of TRL.

A proof returns its figures, or raises ProofFailedError. Proofs of the store and the service run on SQLite, and on
PostgreSQL if it can be started.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".check" / "proofs.json"
GSM8K = Path(os.environ.get("AGENT_TUNIX_GSM8K", ROOT.parent / "shared" / "data" / "gsm8k"))
CORES = 2

WALL_LIMIT_S = 180.0
MIN_LAST_REWARD = 0.85
MIN_REWARD_GAIN = 0.35
MIN_ACCURACY_GAIN = 0.30

AGENT_WALL_LIMIT_S = 150.0
MIN_AGENT_GAIN = 0.40

MIN_REQUESTS = 2000
LARGE_RUN = 1_000_000
MAX_PAGES_MEMORY_MB = 256


class ProofFailedError(Exception):
    """A proof failed; the message says what was found."""


def run_program(*arguments: str, cores: int | None = CORES, timeout_s: float = 900.0) -> tuple[float, str]:
    """Run a Python program in the root of the checkout, and return its wall seconds and output.

    Raises:
        ProofFailedError: The exit status is not 0.
    """
    started = time.perf_counter()
    done = _call(arguments, cores, timeout_s)
    if done.returncode:
        raise ProofFailedError(f"{' '.join(arguments)} ended with status {done.returncode}:\n{done.stdout[-2000:]}")
    return time.perf_counter() - started, done.stdout


def _call(arguments: tuple[str, ...], cores: int | None, timeout_s: float) -> subprocess.CompletedProcess[str]:
    # A launcher sets the cores and then becomes the program: with JAX loaded, a fork of this process could deadlock.
    launcher = (
        "import os, sys\n"
        "cores = int(sys.argv[1])\n"
        "if cores: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", launcher, str(cores or 0), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )


def prove_learning(seed: int, *overrides: str) -> dict[str, Any]:
    """Train the main job, as a newcomer types it, with overrides, and prove that it passes the learning bar.

    The result has the wall time, which `prove_main_job` checks, mean rewards and accuracies.
    """
    with tempfile.TemporaryDirectory() as directory:
        seconds, _ = run_program(
            *("run_training.py", "training.reward_function=math", f"seed={seed}", f"hydra.run.dir={directory}/run"),
            *overrides,
        )
        rows = [json.loads(line) for line in (Path(directory) / "run" / "metrics.jsonl").read_text().splitlines()]
    # With dynamic sampling, the mean over everything sampled, not only over the groups that train.
    rewards = [row.get("sampling/reward_mean", row["rewards/total/mean"]) for row in rows if row["step"] > 0]
    accuracies = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
    seen = {
        "seconds": round(seconds, 1),
        "first_10": round(fmean(rewards[:10]), 3),
        "last_10": round(fmean(rewards[-10:]), 3),
        "accuracy_before": accuracies[0],
        "accuracy_after": accuracies[-1],
        "problems": rows[0]["eval/num_problems"],
    }
    if not (
        seen["last_10"] >= MIN_LAST_REWARD
        and seen["last_10"] - seen["first_10"] >= MIN_REWARD_GAIN
        and seen["accuracy_after"] - seen["accuracy_before"] >= MIN_ACCURACY_GAIN
        and seen["problems"] == 500
    ):
        raise ProofFailedError(f"the learning bar was missed: {seen}")
    return seen


def prove_main_job(seed: int) -> dict[str, Any]:
    """Prove the learning bar within the wall time."""
    seen = prove_learning(seed)
    if seen["seconds"] > WALL_LIMIT_S:
        raise ProofFailedError(f"over {WALL_LIMIT_S:.0f} s: {seen}")
    return seen


ALGORITHMS = {
    "GRPO": (),
    "GRPO, two updates": ("grpo.num_iterations=2",),
    "GRPO, k2, moving reference": ("grpo.kl_estimator=mse_kl", "grpo.reference_sync_steps=10"),
    "Dr. GRPO": ("grpo=dr_grpo",),
    "DAPO": ("grpo=dapo",),
    "GSPO": ("grpo=gspo",),
    "GSPO-token": ("grpo=gspo_token",),
    "RLOO": ("grpo=rloo",),
    "CISPO": ("grpo=cispo",),
    "ScaleRL": ("grpo=scale_rl",),
    "SAPO": ("grpo=sapo",),
    "GMPO": ("grpo=gmpo",),
    "DPPO": ("grpo=dppo",),
    "LUSPO": ("grpo=luspo",),
    "VL Norm": ("grpo=vl_norm",),
    "REINFORCE++ with baseline": ("grpo=reinforce_plus_plus",),
    "MaxRL": ("grpo=max_rl",),
}


def prove_algorithms() -> dict[str, Any]:
    """Prove that every algorithm passes the learning bar of plain GRPO, without a time limit.

    Each result is kept, so an interrupted call resumes.
    """
    kept_at, version = KEPT.with_name("algorithms.json"), _hash_of_code()
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    print(f"{'algorithm':28} {'reward':>16} {'accuracy':>16} {'seconds':>8}", flush=True)
    for name, overrides in ALGORITHMS.items():
        if kept.get(name, {}).get("code") != version:
            try:
                kept[name] = {"code": version, "seen": prove_learning(0, *overrides)}
            except ProofFailedError as error:
                raise ProofFailedError(f"{name}: {error}") from error
            kept_at.parent.mkdir(exist_ok=True)
            kept_at.write_text(json.dumps(kept, indent=1))
        seen = kept[name]["seen"]
        reward = f"{seen['first_10']:.3f} → {seen['last_10']:.3f}"
        accuracy = f"{seen['accuracy_before']:.3f} → {seen['accuracy_after']:.3f}"
        print(f"{name:28} {reward:>16} {accuracy:>16} {seen['seconds']:8.0f}", flush=True)
    return {name: kept[name]["seen"]["accuracy_after"] for name in ALGORITHMS}


def prove_repeatable() -> dict[str, Any]:
    """Prove that the same seed gives the same metrics.jsonl twice, except for timings."""
    from agent_tunix.training.verification import first_difference, read_rows

    with tempfile.TemporaryDirectory() as directory:
        runs = [Path(directory) / name for name in ("one", "other")]
        for run in runs:
            run_program(
                "run_training.py", "training.reward_function=math", "training.num_batches=30", f"hydra.run.dir={run}"
            )
        one, other = (read_rows(run) for run in runs)
    difference = first_difference(one, other)
    if difference is not None:
        raise ProofFailedError(difference)
    return {"rows": len(one)}


def prove_kills(
    num_iterations: int, kills: int, num_batches: int = 40, seed: int = 0, *overrides: str
) -> dict[str, Any]:
    """Prove that a run that is repeatedly killed with SIGKILL and resumed equals one that is never killed."""
    from agent_tunix.training.verification import verify

    found = verify(
        [
            f"training.num_batches={num_batches}",
            "training.save_interval_steps=4",
            "training.eval_every_n_steps=15",
            "evaluation.num_samples=128",
            f"grpo.num_iterations={num_iterations}",
            *overrides,
        ],
        kills=kills,
        seed=seed,
    )
    if not found.equal:
        raise ProofFailedError(found.text)
    return {"rows": found.rows, "killed_at": list(found.kills)}


FAST_FAILURES = {
    "unknown reward": (["training.reward_function=mth"], "math"),
    "bad data path": (["data.source=jsonl", "data.path=/nowhere"], "/nowhere"),
    "batch that does not divide": (["training.batch_size=12", "training.micro_batch_size=8"], "micro_batch_size=6"),
}


def prove_fast_failures() -> dict[str, Any]:
    """Prove that each user error ends in under two seconds, with a non-zero status and a message with the remedy."""
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        needy = Path(directory) / "needy.py"
        needy.write_text("def needy(response, rubric):\n    return 1.0\n")
        cases = FAST_FAILURES | {"parameter without a column": ([f"training.reward_function={needy}:needy"], "rubric")}
        for name, (overrides, expected) in cases.items():
            started = time.perf_counter()
            done = _call(("run_training.py", *overrides), CORES, 60.0)
            seconds = time.perf_counter() - started
            if done.returncode == 0 or expected not in done.stdout or seconds >= 2.0:
                raise ProofFailedError(f"{name}: {seconds:.2f} s, status {done.returncode}: {done.stdout[-500:]}")
            seen[name] = f"{seconds:.2f} s"
    return seen


def prove_quick_starts() -> dict[str, Any]:
    """Prove that `import agent_tunix` and `--cfg job` take under 1 s on a warm disk, and `rewards list` under 0.5 s."""
    seen = {}
    for name, limit_s, arguments in (
        ("import", 1.0, ("-c", "import agent_tunix")),
        ("--cfg job", 1.0, ("run_training.py", "--cfg", "job")),
        ("rewards list", 0.5, ("-m", "agent_tunix", "rewards", "list")),
    ):
        seconds = min(run_program(*arguments)[0] for _ in range(5))
        if seconds >= limit_s:
            raise ProofFailedError(f"{name} takes {seconds:.2f} s")
        seen[name] = f"{seconds:.2f} s"
    return seen


# Easy rows reward every answer, hopeless ones none; the others are word problems.
PASS_RATE_REWARD = """
from agent_tunix.rewards import get_reward_function

math = get_reward_function("math")


def reward(response, answer, kind):
    return math(response, answer=answer) if kind == "useful" else float(kind == "easy")
"""
PASS_RATE_STEPS, PASS_RATE_ROWS, PASS_RATE_EVERY = 100, 300, 5
# AdamW divides the gradient by its size. The gradient of this task has little noise, so dead groups cost it no steps.
PASS_RATE_OPTIMIZER = (
    *("optimizer=sgd", "optimizer.learning_rate=2e-4", "optimizer.max_grad_norm=0", "optimizer.warmup_ratio=0"),
    *("scheduler=constant", "training.batch_size=8"),
)
MOST_PASS_RATE_STEPS = 0.6


def prove_pass_rates(seed: int) -> dict[str, Any]:
    """Prove that sampling by pass rate reaches the accuracy of uniform sampling in at most 0.6 of the steps.

    Two thirds of the rows are easy or hopeless. The accuracy is measured on held-out word problems.
    """
    curves = {}
    with tempfile.TemporaryDirectory() as directory:
        _write_mixed_rows(Path(directory))
        for sampling in ("uniform", "pass_rate"):
            run_program(
                *("run_training.py", f"seed={seed}", f"data.path={directory}", f"data.sampling={sampling}"),
                *(f"training.reward_function={directory}/mixed.py:reward", "rewards.execution=inline"),
                *(f"training.num_batches={PASS_RATE_STEPS}", f"training.eval_every_n_steps={PASS_RATE_EVERY}"),
                *(
                    "evaluation.num_samples=200",
                    "training.save_interval_steps=0",
                    f"hydra.run.dir={directory}/{sampling}",
                ),
                *("tracking.report=false", "tracking.tensorboard=false", *PASS_RATE_OPTIMIZER),
            )
            lines = (Path(directory) / sampling / "metrics.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            curves[sampling] = {row["step"]: row["eval/accuracy"] for row in rows if "eval/accuracy" in row}
    # The mean of three evaluations, because one is noisy.
    last = fmean(list(curves["uniform"].values())[-3:])
    smooth = {step: _mean_around(curves["pass_rate"], step) for step in curves["pass_rate"]}
    reached = next((step for step, accuracy in smooth.items() if step and accuracy >= last), PASS_RATE_STEPS + 1)
    seen = {
        "uniform": round(last, 3),
        "reached_at_step": reached,
        "share_of_steps": round(reached / (PASS_RATE_STEPS - PASS_RATE_EVERY), 2),
        "pass_rate_after": round(curves["pass_rate"][PASS_RATE_STEPS], 3),
    }
    if seen["share_of_steps"] > MOST_PASS_RATE_STEPS:
        raise ProofFailedError(str(seen))
    return seen


def _write_mixed_rows(directory: Path) -> None:
    make_problems = _load("agent_tunix.data.generated.word_problems").make_problems
    kinds = ("useful", "easy", "hopeless")
    train = [{**row, "kind": kinds[n % 3]} for n, row in enumerate(make_problems("train", 3 * PASS_RATE_ROWS, 0))]
    test = [{**row, "kind": "useful"} for row in make_problems("test", 200, 0)]
    for split, rows in {"train": train, "test": test}.items():
        (directory / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "mixed.py").write_text(PASS_RATE_REWARD)


def _mean_around(curve: dict[int, float], step: int) -> float:
    """Return the mean of an evaluation and those before and after it."""
    near = [step - PASS_RATE_EVERY, step, step + PASS_RATE_EVERY]
    return fmean(curve[other] for other in near if other in curve)


def prove_gsm8k() -> dict[str, Any]:
    """Train three steps on the real GSM8K, and prove the limits of 8 GB and 300 s."""
    if not GSM8K.is_dir():
        return {"skipped": f"{GSM8K} is not there; set AGENT_TUNIX_GSM8K"}
    with tempfile.TemporaryDirectory() as directory:
        watched = (
            "import resource, subprocess, sys\n"
            "status = subprocess.call([sys.executable, *sys.argv[1:]])\n"
            "print('peak_kb', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
            "sys.exit(status)\n"
        )
        seconds, output = run_program(
            *("-c", watched, "run_training.py", "data=gsm8k", "data.source=jsonl", f"data.path={GSM8K}"),
            *("training.num_batches=3", f"hydra.run.dir={directory}/run"),
        )
        rows = (Path(directory) / "run" / "metrics.jsonl").read_text().splitlines()
    peak_gb = int(output.rsplit("peak_kb", 1)[1]) / 1024**2
    dropped = [line for line in output.splitlines() if "dropped" in line]
    seen = {"seconds": round(seconds, 1), "peak_gb": round(peak_gb, 2), "rows": len(rows), "dropped": dropped}
    if seconds > 300 or peak_gb > 8 or len(rows) != 4:
        raise ProofFailedError(str(seen))
    return seen


def prove_faults() -> dict[str, Any]:
    """Prove that faulty rewards of every convention have their outcomes in 1000 batches and leave nothing behind."""
    faults = _load("scripts.prove_faults")
    return _asserting(lambda: faults.prove_faults(1000))


def prove_power_cuts() -> dict[str, Any]:
    """Prove that a run whose disk loses power 20 times equals an unbroken one; needs root."""
    if os.geteuid() != 0:
        return {"skipped": "only root can mount a file system"}
    return _asserting(_load("scripts.prove_faults").prove_power_cuts)


def prove_edits() -> dict[str, Any]:
    """Prove that 20 edits of a reward's files in mid-run change no score."""
    return _asserting(_load("scripts.prove_faults").prove_edits)


def prove_answers(name: str) -> dict[str, Any]:
    """Run one of the proofs of `prove_answers.py`."""
    answers = _load("scripts.prove_answers")
    if name == "fuzz":
        return _asserting(answers.prove_fuzz)
    if name == "isolated":
        return _asserting(answers.prove_isolated)
    if not GSM8K.is_dir():
        return {"skipped": f"{GSM8K} is not there; set AGENT_TUNIX_GSM8K"}
    return _asserting(lambda: answers.prove_forms([GSM8K / "train.jsonl", GSM8K / "test.jsonl"]))


def prove_parity() -> dict[str, Any]:
    """Prove that every family equals transformers, in logits and greedy tokens, before and after export.

    Prints the table of the docs. The interpreter is that of `AGENT_TUNIX_PARITY_PYTHON`, or a virtual environment with
    the optional group `parity`, which is created next to the results.
    """
    named = os.environ.get("AGENT_TUNIX_PARITY_PYTHON")
    python = Path(named) if named else KEPT.with_name("parity") / "bin" / "python"
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[parity]"]
        subprocess.run(install, cwd=ROOT, check=True)
    done = subprocess.run(
        [python, "-m", "tests.parity.table"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    if done.returncode or not rows:
        raise ProofFailedError(done.stdout[-2000:])
    print("\n".join(rows), flush=True)
    return {"families": len(rows)}


def prove_sick_and_healthy() -> dict[str, Any]:
    """Prove that the first finding of every sick run is its fault, and that healthy runs have none above info.

    Each result is kept, so an interrupted call resumes.
    """
    sick_runs = _load("tests.training.sick_runs")
    files = [ROOT / "tests" / "training" / name for name in ("sick_runs.py", "sick_rewards.py")]
    version = _hash_of_code() + hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]
    kept_at = KEPT.with_name("sick_runs.json")
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    wanted = [(case, 0) for case in sick_runs.SICK] + [(case, seed) for case in sick_runs.HEALTHY for seed in range(3)]
    for case, seed in wanted:
        name = f"{case.name}, seed {seed}"
        if kept.get(name, {}).get("code") != version:
            with tempfile.TemporaryDirectory() as directory:
                _, output = run_program(
                    *("-m", "tests.training.sick_runs", case.name, "--seed", str(seed), "--check", "--keep", directory)
                )
            kept[name] = {"code": version, "found": output.rpartition(f"seed {seed}: ")[2].strip()}
            kept_at.parent.mkdir(exist_ok=True)
            kept_at.write_text(json.dumps(kept, indent=1))
    return {name: kept[name]["found"] for name in (f"{case.name}, seed {seed}" for case, seed in wanted)}


def prove_killed_uploads(seed: int, again: bool = False) -> dict[str, Any]:
    """Kill an uploading process again and again; prove that the store has all 100 acknowledged uploads, each whole.

    The seed determines the moments of the kills. With `again`, uploads that were not acknowledged are repeated, and
    each must be stored once.
    """
    killing = _load("tests.store.killing")
    seen: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, url in _databases(directory, stack, seen).items():
            result = killing.kill_uploads(url, uploads=100, seed=seed, again=again)
            if result.faults:
                raise ProofFailedError(f"{name}: {'; '.join(result.faults)}")
            seen[name] = f"{result.acknowledged} uploads, {result.kills} kills, {result.unacknowledged} unacknowledged"
    return seen


def _databases(directory: Path, stack: contextlib.ExitStack, seen: dict[str, Any]) -> dict[str, str]:
    """Return URLs of an empty SQLite file and of a new PostgreSQL; if that cannot start, `seen` gets the reason."""
    servers = _load("tests.postgresql")
    urls = {"sqlite": f"sqlite:///{directory}/store.db"}
    try:
        urls["postgresql"] = stack.enter_context(servers.running_postgresql())
    except servers.Unavailable as error:
        seen["postgresql"] = str(error)
    return urls


def prove_killed_server() -> dict[str, Any]:
    """Kill a server repeatedly during 100 uploads, each retried until acknowledged; prove that each is stored once."""
    killing = _load("tests.service.killing")
    seen: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, url in _databases(directory, stack, seen).items():
            result = killing.kill_server(url, directory, uploads=100, seed=0, longest_s=1.5)
            if result.faults:
                raise ProofFailedError(f"{name}: {'; '.join(result.faults)}")
            seen[name] = f"{len(result.acknowledged)} uploads, {result.kills} kills, {result.lost} made again"
    return seen


def prove_conformance() -> dict[str, Any]:
    """Prove that the service answers every request made from its OpenAPI document as documented."""
    conformance, support = _load("tests.service.conformance"), _load("tests.service.support")
    service, store = _load("agent_tunix.service"), _load("agent_tunix.store")
    runs = _load("tests.tracking.report.support")
    seen: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = _databases(directory, stack, seen)
        (directory / "runs").mkdir()
        for number in range(5):
            runs.write_run(directory / "runs" / str(number), num_steps=3)
        settings = service.Settings(requests_per_second=0, runs=(directory / "runs",))
        for name, url in urls.items():
            requests = 0
            with store.open_store(url) as opened, support.running(opened, settings) as server:
                for seed in range(2):
                    with server.client() as client:
                        for _ in range(20):
                            support.upload(client, support.new_name())
                    result = conformance.check_conformance(server.url, server.secret, directory, 200, seed)
                    if not result.holds:
                        raise ProofFailedError(f"{name}, seed {seed}: {result.text[-4000:]}")
                    requests += result.cases
            if requests < MIN_REQUESTS:
                raise ProofFailedError(f"{name}: {requests} requests are fewer than {MIN_REQUESTS}")
            seen[name] = f"{requests} requests"
    return seen


def prove_large_run() -> dict[str, Any]:
    """Prove that the inspector shows a run of a million completions in limited memory."""
    large_run = _load("scripts.large_run")
    with tempfile.TemporaryDirectory() as directory:
        seen: dict[str, Any] = large_run.look_into_large_run(Path(directory))
    if seen["rollouts"] < LARGE_RUN or seen["memory_mb"] > MAX_PAGES_MEMORY_MB:
        raise ProofFailedError(f"of at least {LARGE_RUN:,} completions, in {MAX_PAGES_MEMORY_MB} MB: {seen}")
    return seen


def prove_abuse() -> dict[str, Any]:
    """Prove that a server answers the attacks of tests/service/abuse as documented, and that nothing is left."""
    table, victims = _load("tests.service.abuse.table"), _load("tests.service.abuse.victim")
    if unheld := table.unheld_lines():
        raise ProofFailedError(f"the page has other attacks: {sorted(unheld)}")
    seen: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, url in _databases(directory, stack, seen).items():
            (directory / name).mkdir()
            results = []
            with victims.attacked(url, directory / name) as victim:
                before = victim.signs()
                for result in table.attack(victim, table.CASES):
                    print(f"    {name:10}  {result.text}", flush=True)
                    results.append(result)
                after = victim.signs()
            failed = [result.text for result in results if not result.holds]
            if failed:
                raise ProofFailedError(f"{name}: " + "\n".join(failed))
            descriptors, grown_mb = after.descriptors - before.descriptors, after.memory_mb - before.memory_mb
            seen[name] = f"{len(results)} attacks, {descriptors:+d} descriptors, {grown_mb:+.0f} MB"
    return seen


def prove_processes() -> dict[str, Any]:
    """Prove that runs of two and four processes equal that of one, for each mesh, end and resumption.

    Each result is kept, so an interrupted call resumes.
    """
    proofs = _load("scripts.prove_processes")
    version = _hash_of_code()
    kept_at = KEPT.with_name("processes.json")
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    for name, prove in proofs.PROOFS.items():
        if kept.get(name, {}).get("code") != version:
            with tempfile.TemporaryDirectory() as directory:
                seen = _asserting(functools.partial(prove, Path(directory)))
            kept[name] = {"code": version, "seen": seen}
            kept_at.parent.mkdir(exist_ok=True)
            kept_at.write_text(json.dumps(kept, indent=1))
        print(f"    {name:44} {kept[name]['seen']}", flush=True)
    return {"runs": len(proofs.PROOFS)}


def prove_agents() -> dict[str, Any]:
    """Prove that agents with random faults have typed outcomes and leave nothing behind."""
    return _asserting(_load("scripts.prove_agents").prove_agents)


def prove_agent_calculator(seed: int) -> dict[str, Any]:
    """Prove that the embedded agent learns within the wall time."""
    with tempfile.TemporaryDirectory() as directory:
        seconds, _ = run_program(
            *("run_training.py", "environment=agent_calculator", f"seed={seed}", f"hydra.run.dir={directory}/run")
        )
        rows = [json.loads(line) for line in (Path(directory) / "run" / "metrics.jsonl").read_text().splitlines()]
    accuracies = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
    seen = {"seconds": round(seconds, 1), "accuracy_before": accuracies[0], "accuracy_after": accuracies[-1]}
    if seconds > AGENT_WALL_LIMIT_S or accuracies[-1] - accuracies[0] < MIN_AGENT_GAIN:
        raise ProofFailedError(f"the learning bar of agents was missed: {seen}")
    return seen


def prove_engine_kills() -> dict[str, Any]:
    """Prove that a run goes on as before where one of its two sampling processes is killed."""
    return _asserting(functools.partial(_load("scripts.prove_engine_kills").prove_kills, 10))


def prove_ahead_learns(seed: int) -> dict[str, Any]:
    """Prove that the main job learns with K = 1, 2 and 4, sampled by an engine in another process."""
    engine = ("engine=agent_tunix", "engine.num_processes=1")
    return {f"K = {lag}": prove_learning(seed, *engine, f"engine.max_staleness={lag}") for lag in (1, 2, 4)}


def prove_ahead(name: str, *arguments: Any) -> dict[str, Any]:
    """Run one of the proofs of `tests/training/ahead_runs.py`, in a directory of its own."""
    proof = getattr(_load("tests.training.ahead_runs"), name)
    with tempfile.TemporaryDirectory() as directory:
        return _asserting(lambda: proof(Path(directory), *arguments))


def prove_real_model(arguments: argparse.Namespace, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Compare a pretrained model with transformers, train it, and time its steps and TRL's."""
    proof = _load("scripts.prove_real_model")
    options = proof.RealModel(arguments.model, arguments.torch, arguments.steps, overrides)
    return _asserting(lambda: proof.prove_real_model(options))


def _load(module: str) -> ModuleType:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(module)


def _asserting(proof: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return proof()
    except AssertionError as error:
        raise ProofFailedError(str(error)) from error


PROOFS: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"main job, seed {seed}": functools.partial(prove_main_job, seed) for seed in range(3)},
    "algorithms learn": prove_algorithms,
    "same seed twice": prove_repeatable,
    "ten kills": functools.partial(prove_kills, 1, 10),
    "ten kills, two iterations": functools.partial(prove_kills, 2, 10),
    "fast failures": prove_fast_failures,
    "quick starts": prove_quick_starts,
    "real GSM8K": prove_gsm8k,
    **{f"pass rates, seed {seed}": functools.partial(prove_pass_rates, seed) for seed in range(3)},
    "faulty rewards": prove_faults,
    "power cuts": prove_power_cuts,
    "edits of a reward": prove_edits,
    "answers: every reference": functools.partial(prove_answers, "forms"),
    "answers: 200,000 strings": functools.partial(prove_answers, "fuzz"),
    "answers: isolated rewards": functools.partial(prove_answers, "isolated"),
    "parity with transformers": prove_parity,
    "sick and healthy runs": prove_sick_and_healthy,
    **{f"killed uploads, seed {seed}": functools.partial(prove_killed_uploads, seed) for seed in range(2)},
    "killed uploads, made again": functools.partial(prove_killed_uploads, 2, again=True),
    "service: killed uploads": prove_killed_server,
    "service: schemathesis": prove_conformance,
    "inspector: a million completions": prove_large_run,
    "service: abuse": prove_abuse,
    "processes": prove_processes,
    "agents: 1,000 rollouts with faults": prove_agents,
    "agents: ten kills": functools.partial(prove_kills, 1, 10, 12, 0, "environment=agent_calculator"),
    "engines: ten kills of a replica": prove_engine_kills,
    "sampling ahead: length of a step": functools.partial(prove_ahead, "prove_length_of_steps"),
    **{f"sampling ahead: ten kills, K = {lag}": functools.partial(prove_ahead, "prove_kills", lag) for lag in (1, 2)},
    **{f"sampling ahead: learning, seed {seed}": functools.partial(prove_ahead_learns, seed) for seed in range(3)},
    **{f"agent calculator, seed {seed}": functools.partial(prove_agent_calculator, seed) for seed in range(3)},
}


REAL_MODEL = "real model"


def main(argv: list[str] | None = None) -> int:
    """Run the proofs that have not held yet, and print the table; without names, list the proofs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="proofs to run; KEY=VALUE changes the real model's run"
    )
    parser.add_argument("--all", action="store_true", help="run all proofs, the real model's only with --model")
    real = parser.add_argument_group(REAL_MODEL)
    real.add_argument("--model", type=Path, metavar="DIR", help="Hugging Face directory of the model")
    real.add_argument(
        "--torch", default=sys.executable, metavar="PYTHON", help="interpreter with torch and transformers, or TRL too"
    )
    real.add_argument("--steps", type=int, default=30, help="training steps (default: 30)")
    arguments = parser.parse_intermixed_args(argv)
    overrides = tuple(name for name in arguments.names if "=" in name)
    names = [name for name in arguments.names if "=" not in name]
    if unknown := set(names) - PROOFS.keys() - {REAL_MODEL}:
        parser.error(f"no such proof: {', '.join(sorted(unknown))}; without names, this program lists the proofs")
    if arguments.all:
        names = [*PROOFS, *([REAL_MODEL] if arguments.model else [])]
    if not names:
        print("\n".join([*PROOFS, f"{REAL_MODEL} (needs --model)"]))
        return 0
    if overrides and REAL_MODEL not in names:
        parser.error(f"{', '.join(overrides)}: only {REAL_MODEL!r} takes overrides")
    proofs = dict(PROOFS)
    if REAL_MODEL in names:
        _check_real_model(parser, arguments)
        # The result is kept for this model and these settings.
        kept_as = " ".join([REAL_MODEL, str(arguments.model.resolve()), str(arguments.steps), *overrides])
        proofs[kept_as] = functools.partial(prove_real_model, arguments, overrides)
        names = [kept_as if name == REAL_MODEL else name for name in names]
    version = _hash_of_code()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    failed = False
    for name in names:
        result = kept.get(name, {})
        if result.get("code") != version or result.get("held") is not True:
            try:
                result = {"code": version, "held": True, "seen": proofs[name]()}
            except ProofFailedError as error:
                result, failed = {"code": version, "held": False, "seen": str(error)}, True
            kept[name] = result
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(kept, indent=1))
        print(f"{'held  ' if result['held'] else 'FAILED'}  {name:28}  {result['seen']}", flush=True)
    return int(failed)


def _check_real_model(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.model is None or not (arguments.model / "config.json").is_file():
        parser.error(
            f"{REAL_MODEL!r} needs --model, a Hugging Face directory with a config.json, not {arguments.model}"
        )
    missing = _load("scripts.prove_real_model").missing_modules(arguments.torch, "torch", "transformers")
    if missing is not None:
        parser.error(
            f"{REAL_MODEL!r} needs torch and transformers: {missing}; name an interpreter that has them with --torch, "
            "or pip install -e '.[parity]'"
        )


def _hash_of_code() -> str:
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "conf").rglob("*.yaml"), Path(__file__)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
