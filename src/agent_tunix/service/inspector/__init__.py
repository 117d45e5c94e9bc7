"""The inspector: the pages on which people look into runs and reward functions, beside the API and in its process.

Pages are made on the server; scripts only add to them. Everything they load lies in this package. A person logs in with
a key of the store, and may do what that key may do.
"""

from fastapi import FastAPI

from agent_tunix.service.inspector import assets, editing, functions, login, rollouts, runs
from agent_tunix.service.inspector.sessions import Sessions


def mount(app: FastAPI) -> None:
    """Add the pages to an app, none of them to its OpenAPI document."""
    app.state.sessions = Sessions()
    for room in (assets, login, runs, rollouts, functions, editing):
        room.add_routes(app)
