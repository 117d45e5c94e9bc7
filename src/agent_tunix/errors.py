"""Every exception that agent_tunix raises on purpose.

    AgentTunixError
    ├── ConfigError (ValueError)          a setting is missing, unknown or contradicts another
    ├── DataError (ValueError)            a file or row of a dataset cannot be used
    ├── RewardError (ValueError)          a reward cannot be found, loaded or called
    │   ├── UnknownRewardError (LookupError)   no reward of that name
    │   ├── RewardSignatureError               a parameter that nothing provides
    │   ├── BadReferenceError                  a row's reference answer cannot be used
    │   ├── SandboxUnavailableError            code of others cannot be isolated on this machine
    │   └── UndecidedAnswerError               whether an answer is right could not be found out
    ├── RewardFailureRateError (RuntimeError)  too many completions of a step went unscored
    ├── ModelError (ValueError)           a model directory cannot be loaded
    ├── CheckpointError (RuntimeError)    a checkpoint cannot be written or read
    ├── ExportError (OSError)             a model cannot be written where it is to go
    ├── RunDirectoryError (OSError)       a run's directory is taken, full or unwritable
    ├── UntrustedRunError (PermissionError)    a run that somebody else made would run code or send text
    ├── StoreError (RuntimeError)         the store of reward functions cannot be opened, read or written
    │   └── StoreRequestError (ValueError)     what was asked of it cannot be done
    │       ├── UploadError                    an uploaded file is not a reward function
    │       ├── NameTakenError                 the name belongs to another
    │       ├── NotStoredError (LookupError)   there is no such reward function or key
    │       └── AccessDeniedError (PermissionError)   the key is unknown or revoked, or may not do this
    ├── ServiceError (RuntimeError)       the service cannot be started
    ├── NonFiniteUpdateError (RuntimeError)    a loss or gradient was NaN or infinite
    ├── LostProcessError (RuntimeError)   another process of the run failed or is gone
    └── Interrupted (RuntimeError)        a signal asked the run to stop; it has saved

Every error has a `code`, a stable name that programs and tests compare; several errors of one class have one each.
Each message says what was required, what arrived and what to do. The command line prints the message alone;
any other exception is a defect of ours and keeps its traceback.
"""


class AgentTunixError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: What was required, what arrived and what to do.
        code: A stable name for the error, such as `unknown_key`. Without one, the class's own is used.

    Attributes:
        code: The name that programs and tests compare. It stays the same when the message is reworded.
    """

    code = "error"

    def __init__(self, *message: object, code: str | None = None) -> None:
        super().__init__(*message)
        if code is not None:
            self.code = code


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
    """No reward goes by the name; the message lists those that exist and the nearest match."""

    code = "unknown_reward"


class RewardSignatureError(RewardError):
    """A reward requires a parameter that neither the pipeline nor a dataset column provides."""

    code = "invalid_reward_signature"


class BadReferenceError(RewardError):
    """A row's reference answer is missing, or not one the reward can compare with.

    A reward raises it; the completion's outcome is then `bad_reference`, never a score.
    """

    code = "bad_reference"


class SandboxUnavailableError(RewardError):
    """Code of others cannot be isolated here, and was therefore not run; the message says what is missing."""

    code = "sandbox_unavailable"


class UndecidedAnswerError(RewardError):
    """Whether an answer is right could not be found out: what should compare it ran out of time, or failed.

    A reward raises it; the completion's outcome is then `timeout` or `error`, never a score.

    Attributes:
        timed_out: Whether it was time that ran out.
    """

    code = "undecided_answer"

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class RewardFailureRateError(AgentTunixError, RuntimeError):
    """More completions of a step went unscored than `rewards.max_failure_rate` allows."""

    code = "reward_failure_rate"


class ModelError(AgentTunixError, ValueError):
    """A model directory cannot be loaded: a file is missing, damaged or of an unsupported architecture."""

    code = "invalid_model"


class CheckpointError(AgentTunixError, RuntimeError):
    """A checkpoint cannot be written or read."""

    code = "invalid_checkpoint"


class ExportError(AgentTunixError, OSError):
    """A model cannot be written where it is to go: something else is there, or the disk is full."""

    code = "export_failed"


class RunDirectoryError(AgentTunixError, OSError):
    """A run's directory is taken, full or unwritable."""

    code = "invalid_run_directory"


class UntrustedRunError(AgentTunixError, PermissionError):
    """A run that this installation did not make would run code or send text; the message lists what and from where."""

    code = "untrusted_run"


class StoreError(AgentTunixError, RuntimeError):
    """The store of reward functions cannot be opened, reached, read or written."""

    code = "store_failed"


class StoreRequestError(StoreError, ValueError):
    """What was asked of the store cannot be done, and asking again would not help.

    Attributes:
        code: A word for programs, such as `invalid_name`.
        param: Which part of what was asked is at fault; None: no one part.
    """

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


class UploadError(StoreRequestError):
    """An uploaded file is not a reward function of the format that it is said to have, or its name cannot be used."""


class NameTakenError(StoreRequestError):
    """The name belongs to another: a reward function's to another key, a key's to another that is not revoked."""


class NotStoredError(StoreRequestError, LookupError):
    """The store has no such reward function or key."""


class AccessDeniedError(StoreRequestError, PermissionError):
    """The key is unknown or revoked, or may not do what it is used for."""


class ServiceError(AgentTunixError, RuntimeError):
    """The service cannot be started: its address is taken, or reachable by others while there is no key."""

    code = "service_failed"


class NonFiniteUpdateError(AgentTunixError, RuntimeError):
    """A loss or gradient was NaN or infinite; the weights were not updated with it."""

    code = "non_finite_update"


class LostProcessError(AgentTunixError, RuntimeError):
    """Another process of the run failed or is gone, without which no step can be taken."""

    code = "lost_process"


class Interrupted(AgentTunixError, RuntimeError):
    """A signal asked the run to stop; a checkpoint was saved before this was raised.

    Attributes:
        signal_number: The signal, for the exit status (128 + the number).
    """

    code = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
