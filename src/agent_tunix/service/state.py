"""Objects that the requests of a running service share."""

from dataclasses import dataclass

from starlette.requests import Request

from agent_tunix.service.limits import TokenBuckets
from agent_tunix.service.runs import RunIndex
from agent_tunix.service.settings import ServiceSettings
from agent_tunix.service.threads import StoreCalls, WorkThreads
from agent_tunix.service.tries import Tries
from agent_tunix.store import Key
from agent_tunix.store.opening import Store


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: its settings, its store, and the state that requests share."""

    settings: ServiceSettings
    store: Store
    calls: StoreCalls
    buckets: TokenBuckets  # rate limits of keys
    tries: Tries
    runs: RunIndex
    run_reads: WorkThreads

    @classmethod
    def of(cls, settings: ServiceSettings, store: Store) -> "Service":
        """Return a service with the given settings."""
        buckets = TokenBuckets(settings.requests_per_second, settings.burst)
        tries = Tries(settings.tries, settings.allow_unsandboxed)
        return cls(
            settings,
            store,
            StoreCalls(store),
            buckets,
            tries,
            RunIndex(settings.runs),
            WorkThreads("run-reads", 4, 68, "reads of runs are queued"),
        )

    def close(self) -> None:
        """Wait for work that has started; the store stays open."""
        self.tries.close()
        self.run_reads.close()
        self.calls.close()


def key_of(request: Request) -> Key:
    """Return the key of a request that was admitted, to the API or with a login."""
    key: Key = request.state.key
    return key


def service_of(request: Request) -> Service:
    """Return the service that handles a request."""
    service: Service = request.app.state.service
    return service
