"""Trust in runs: the user's own runs are signed, other runs need the user's permission.

A run's configuration names code that scores completions, endpoints that judges call, and files to load. A run that
starts or resumes signs its configuration and the files of its rewards with a key that only this installation has. The
signature marks it as the user's own run. Code, endpoints and private files of any other run are used only after the
user allows it. The permission is stored and holds until the run changes. These checks execute nothing of the run.
"""

from agent_tunix.runs.trust.settling import check_directory, settle_trust, with_own_limits
from agent_tunix.runs.trust.signing import is_own_file, sign_file, sign_run
from agent_tunix.runs.trust.used_parts import correct_parts, data_parts, parts_of

__all__ = [
    "check_directory",
    "correct_parts",
    "data_parts",
    "is_own_file",
    "parts_of",
    "settle_trust",
    "sign_file",
    "sign_run",
    "with_own_limits",
]
