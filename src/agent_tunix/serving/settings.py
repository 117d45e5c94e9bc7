"""Settings of the server of a policy."""

from dataclasses import dataclass

from agent_tunix.errors import ServiceError
from agent_tunix.web.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class PolicySettings(ServerSettings):
    """Settings of `agent-tunix serve-policy`, and of the server of a run for its agents."""

    port: int = 8000
    max_body_bytes: int = 16 * 1024 * 1024
    model: str = "policy"  # name of the policy in requests
    accepts_any_model: bool = False  # True if every unknown name means the policy
    max_context: int = 4096  # maximum tokens of a prompt and its reply
    api_keys: tuple[str, ...] = ()  # without one, no request needs a key
    # Directories below which `/v1/load_lora_adapter` may load adapters; without one, the route is refused.
    adapter_directories: tuple[str, ...] = ()
    loads_weights: bool = False  # True if `/v1/load_weights` may replace the policy's weights by those below there
    num_kept_calls: int = 256  # recent calls of which a conversation can continue the tokens, without a recorder

    def check_exposure(self) -> None:
        """Raise ServiceError if other machines can reach the server and there is no key."""
        if not self.is_loopback and not self.api_keys:
            raise ServiceError(
                f"{self.host} can be reached from other machines, which requires a key, but there is none; give one "
                "with --api-key or AGENT_TUNIX_API_KEY, or serve on 127.0.0.1"
            )
