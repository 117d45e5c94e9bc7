"""Exceptions that agent_tunix raises deliberately.

    AgentTunixError
    ├── ConfigError (ValueError)          a setting is missing, unknown or contradicts another
    ├── DataError (ValueError)            a file or row of a dataset cannot be used
    ├── RewardError (ValueError)          a reward cannot be found, loaded or called
    │   ├── UnknownRewardError (LookupError)   no reward has that name
    │   ├── RewardSignatureError               a required parameter has no source
    │   ├── BadReferenceError                  the reference of a row cannot be used
    │   ├── SandboxUnavailableError            this machine cannot isolate code of others
    │   └── UndecidedAnswerError               a comparison of answers failed or timed out
    ├── InvalidEnvironmentError (ValueError)   an environment or tool cannot be found, loaded or described
    │   └── UnknownEnvironmentError (LookupError)   no environment or tool has that name
    ├── EnvironmentFailedError (RuntimeError)  an environment raised an error, hung or died during an episode
    ├── RewardFailureRateError (RuntimeError)  too many completions of a step are unscored
    ├── ModelError (ValueError)           a model directory cannot be loaded
    ├── CheckpointError (RuntimeError)    a checkpoint cannot be written or read
    ├── ExportError (OSError)             a model cannot be written to its destination
    ├── RunDirectoryError (OSError)       a run directory is taken, full or not writable
    ├── UntrustedRunError (PermissionError)    a run of others would run code or send text
    ├── StoreError (RuntimeError)         the reward store cannot be opened, read or written
    │   └── StoreRequestError (ValueError)     the store cannot fulfil a request
    │       ├── UploadError                    an uploaded file is not a reward function
    │       ├── NameTakenError                 the name belongs to another owner
    │       ├── NotStoredError (LookupError)   there is no such reward function or key
    │       └── AccessDeniedError (PermissionError)   the key is unknown, revoked or not allowed to do this
    ├── ServiceError (RuntimeError)       the service cannot be started
    ├── NonFiniteUpdateError (RuntimeError)    a loss or gradient was NaN or infinite
    ├── DeviceMemoryError (RuntimeError)  a program needs more memory than a device has
    ├── LostProcessError (RuntimeError)   another process of the run failed or disappeared
    └── Interrupted (RuntimeError)        a signal stopped the run after it saved a checkpoint

Every error has a `code`, a stable name for programs and tests. A class may have several codes. Each message says what
was required, what was given and how to fix it. The command line and notebooks print only the message; any other
exception is a bug and keeps its traceback.
"""

from collections.abc import Callable


class AgentTunixError(Exception):
    """Base class of all errors that agent_tunix raises deliberately.

    Args:
        message: What was required, what was given and how to fix it.
        code: Stable name of the error, such as `unknown_key`; by default the code of the class.

    Attributes:
        code: Name for programs and tests. It does not change when the message is reworded.
    """

    code = "error"

    def __init__(self, *message: object, code: str | None = None) -> None:
        super().__init__(*message)
        if code is not None:
            self.code = code

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints below the cell in place of a traceback."""
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


class ConfigError(AgentTunixError, ValueError):
    """A setting is missing, unknown or contradicts another."""

    code = "invalid_config"


class DataError(AgentTunixError, ValueError):
    """A file or row of a dataset cannot be used."""

    code = "invalid_data"


class RewardError(AgentTunixError, ValueError):
    """A reward cannot be found, loaded or called."""

    code = "invalid_reward"


class UnknownRewardError(RewardError, LookupError):
    """No reward has the name. The message lists the available rewards and the closest match."""

    code = "unknown_reward"


class RewardSignatureError(RewardError):
    """A reward requires a parameter that neither the pipeline nor a dataset column provides."""

    code = "invalid_reward_signature"


class BadReferenceError(RewardError):
    """A row's reference answer is missing, or the reward cannot compare with it.

    If a reward raises this, the completion has the outcome `bad_reference` and no score.
    """

    code = "bad_reference"


class SandboxUnavailableError(RewardError):
    """Code of others cannot be isolated on this machine, so it was not run. The message says what is missing."""

    code = "sandbox_unavailable"


class UndecidedAnswerError(RewardError):
    """The comparison of an answer with the reference timed out or failed.

    If a reward raises this, the completion has the outcome `timeout` or `error` and no score.

    Attributes:
        timed_out: True if the comparison timed out.
    """

    code = "undecided_answer"

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class InvalidEnvironmentError(AgentTunixError, ValueError):
    """An environment or tool cannot be found, loaded or described to a model."""

    code = "invalid_environment"


class UnknownEnvironmentError(InvalidEnvironmentError, LookupError):
    """No environment or tool has the name. The message lists the available ones and the closest match."""

    code = "unknown_environment"


class EnvironmentFailedError(AgentTunixError, RuntimeError):
    """An environment raised an error, hung or died during an episode, which then has no score."""

    code = "environment_failed"


class RewardFailureRateError(AgentTunixError, RuntimeError):
    """More completions of a step are unscored than `rewards.max_failure_rate` allows."""

    code = "reward_failure_rate"


class ModelError(AgentTunixError, ValueError):
    """A model directory cannot be loaded: a file is missing, damaged or of an unsupported architecture."""

    code = "invalid_model"


class CheckpointError(AgentTunixError, RuntimeError):
    """A checkpoint cannot be written or read."""

    code = "invalid_checkpoint"


class ExportError(AgentTunixError, OSError):
    """A model cannot be written to its destination: something else is there, or the disk is full."""

    code = "export_failed"


class RunDirectoryError(AgentTunixError, OSError):
    """A run directory is taken, full or not writable."""

    code = "invalid_run_directory"


class UntrustedRunError(AgentTunixError, PermissionError):
    """A run that this installation did not start would run code or send text. The message lists all of it."""

    code = "untrusted_run"


class StoreError(AgentTunixError, RuntimeError):
    """The store of reward functions cannot be opened, reached, read or written."""

    code = "store_failed"


class StoreRequestError(StoreError, ValueError):
    """The store cannot fulfil a request, and a retry would not help.

    Attributes:
        code: Name for programs, such as `invalid_name`.
        param: Part of the request at fault; None if no single part is.
    """

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


class UploadError(StoreRequestError):
    """An uploaded file is not a reward function of the given format, or its name cannot be used."""


class NameTakenError(StoreRequestError):
    """The name belongs to a reward function of another key, or to another key that is not revoked."""


class NotStoredError(StoreRequestError, LookupError):
    """The store has no such reward function or key."""


class AccessDeniedError(StoreRequestError, PermissionError):
    """The key is unknown, revoked or not allowed to do this."""


class ServiceError(AgentTunixError, RuntimeError):
    """A server does not answer, or cannot be started: its address is taken, or others can reach it without a key."""

    code = "service_failed"


class RequestRefusedError(AgentTunixError, ValueError):
    """A request to a served policy has a value out of range, or asks for something that is not supported."""

    code = "request_refused"


class OverloadedError(AgentTunixError, RuntimeError):
    """Too many requests to a served policy wait."""

    code = "overloaded"


class EngineError(AgentTunixError, RuntimeError):
    """An inference engine does not answer, or not as it must."""

    code = "engine_failed"


class NonFiniteUpdateError(AgentTunixError, RuntimeError):
    """A loss or gradient was NaN or infinite. The weights were not updated with it."""

    code = "non_finite_update"


class DeviceMemoryError(AgentTunixError, RuntimeError):
    """A program of the run needs more memory than a device has."""

    code = "out_of_device_memory"


class LostProcessError(AgentTunixError, RuntimeError):
    """Another process of the run failed or disappeared, and no step can be taken without it."""

    code = "lost_process"


class Interrupted(AgentTunixError, RuntimeError):
    """A signal stopped the run, after it saved a checkpoint.

    Attributes:
        signal_number: The signal, for the exit status (128 + the number).
        finish: Does what can wait until the message is shown: it writes the report. There may be no time for it.
    """

    code = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.finish: Callable[[], object] = lambda: None
