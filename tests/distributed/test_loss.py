"""Errors of a partner that is gone, and the last words of a process that JAX would abort."""

import subprocess
import sys

import pytest

from agent_tunix.distributed.loss import is_of_a_partner

ABORTED = """
import ctypes, threading
from agent_tunix.distributed.loss import AbortHandler
handler = AbortHandler()
handler.text, handler.status = "LostProcessError: it is gone", 7
handler.tell = lambda text: print("told:", text)
handler.install()
thread = threading.Thread(target=ctypes.CDLL(None).abort)
thread.start()
thread.join(30)
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:53919"), True),
        (RuntimeError("INTERNAL: NCCL operation failed"), True),
        (RuntimeError("UNAVAILABLE: from remote target coordination_service while calling /xla.Coordination"), True),
        (RuntimeError("DEADLINE_EXCEEDED [type.googleapis.com/tensorflow.CoordinationServiceError='']"), True),
        (ConnectionResetError("Gloo"), False),
        (RuntimeError("a tracker said: connection refused"), False),
        (RuntimeError("RESOURCE_EXHAUSTED: out of memory"), False),
    ],
)
def test_a_partner_is_told_from_other_things_that_fail(error: Exception, expected: bool) -> None:
    assert is_of_a_partner(error) is expected


@pytest.mark.slow
def test_an_abort_in_a_thread_ends_with_our_words_and_our_status() -> None:
    done = subprocess.run([sys.executable, "-c", ABORTED], capture_output=True, text=True, check=False)

    assert done.returncode == 7
    assert done.stderr.endswith("LostProcessError: it is gone\n")
    assert done.stdout == "told: LostProcessError: it is gone\n"
