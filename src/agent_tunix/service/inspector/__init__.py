"""The inspector: pages to inspect runs and reward functions, in the same process as the API.

Pages are rendered on the server; scripts only add to them, and all assets are in this package. Users log in with a key
of the store and have its permissions.
"""

from fastapi import FastAPI

from agent_tunix.service.inspector import assets, functions, login, rollouts, runs
from agent_tunix.service.inspector.access import Sessions


def mount(app: FastAPI) -> None:
    """Add the pages to an app, but not to its OpenAPI document."""
    app.state.sessions = Sessions()
    for room in (assets, login, runs, rollouts, functions):
        room.add_routes(app)
