"""The OpenAPI document is true to what the service does. `scripts/proofs.py` puts ten times as many requests to it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_tunix.service import ServiceSettings
from tests.service.conformance import check_conformance
from tests.service.support import new_name, serving, upload
from tests.tracking.report.support import write_run


@pytest.fixture
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


@pytest.mark.slow
def test_schemathesis_finds_no_answer_that_differs_from_the_document(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "runs").mkdir(exist_ok=True)
        write_run(tmp_path / "runs" / str(number), num_steps=3)
    settings = ServiceSettings(requests_per_second=0, runs=(tmp_path / "runs",))
    with serving(tmp_path, settings) as server:
        with server.client() as client:
            for _ in range(2):
                upload(client, new_name())
        seen = check_conformance(server.url, server.secret, tmp_path, max_examples=5)
    assert seen.holds, seen.text
    assert seen.cases >= 60


def test_every_operation_has_the_errors_that_any_request_may_get(document: dict[str, Any]) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) == 11
    for operation in operations:
        assert {"400", "401", "403", "408", "429", "500", "503"} <= set(operation["responses"])
        assert "422" not in operation["responses"]
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"]
            if int(status) >= 400:
                (content,) = response["content"].values()
                assert content["schema"]["$ref"].endswith("/ErrorResponse")


def test_every_operation_needs_a_key(document: dict[str, Any]) -> None:
    assert document["security"] == [{"key": []}]
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def test_schemas_of_the_document_name_all_their_fields(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert not {"HTTPValidationError", "ValidationError"} & set(schemas)
    loose = [name for name, schema in schemas.items() if schema.get("additionalProperties") is not False]
    assert [name for name in loose if not name.startswith("Body_")] == []
