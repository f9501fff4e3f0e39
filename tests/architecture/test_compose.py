"""docker-compose.yml against the compose specification, and what both it and the Dockerfile promise."""

import re
from typing import Any

import pytest
from compose_spec import PyCompose, parse_duration
from compose_spec.models import ComposeSpecification

from tests.architecture.product import ROOT

COMPOSE = (ROOT / "docker-compose.yml").read_text("utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
FILES = {
    "CALLER_SECRET_FILE": "./shop.whsec",
    "ORDERFLOW_APPROVERS_FILE": "./approvers.json",
    "ORDERFLOW_CALLERS_FILE": "./callers.json",
    "POSTGRES_PASSWORD_FILE": "./postgres-password",
}
SERVERS = ["temporal", "postgresql", "simulator"]
VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")


def interpolate(text: str, environment: dict[str, str]) -> str:
    """`text` with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` replaced as by compose; LookupError if asked."""

    def value(match: re.Match[str]) -> str:
        if given := environment.get(match["name"]):
            return given
        if match["kind"] == "?":
            raise LookupError(match["text"])
        return match["text"] or ""

    return VARIABLE.sub(value, text)


def services(**environment: str) -> dict[str, dict[str, Any]]:
    """The services by name, as they run with this environment."""
    composed: dict[str, dict[str, Any]] = PyCompose.from_yaml(interpolate(COMPOSE, FILES | environment)).to_dict()[
        "services"
    ]
    return composed


def test_compose_file_follows_the_compose_specification() -> None:
    """Each key is known, each value has its type, each secret, config and volume that is used is defined."""
    composed = PyCompose.from_yaml(interpolate(COMPOSE, FILES))
    composed.validate()
    ComposeSpecification.model_validate(composed.to_dict())


def test_an_unknown_key_would_be_refused() -> None:
    """The check above can fail."""
    with pytest.raises(ValueError, match="helthcheck"):
        PyCompose.from_yaml(interpolate(COMPOSE, FILES).replace("healthcheck:", "helthcheck:", 1))


@pytest.mark.parametrize("name", FILES)
def test_without_keys_and_password_nothing_starts(name: str) -> None:
    """No credential has a default that somebody else knows."""
    with pytest.raises(LookupError, match="see the head of this file"):
        interpolate(COMPOSE, {key: value for key, value in FILES.items() if key != name})


@pytest.mark.parametrize("service", services().values(), ids=services().keys())
def test_each_image_is_pinned(service: dict[str, Any]) -> None:
    """A tag that names a release, or what is built here."""
    tag = service["image"].rpartition(":")[2]
    assert re.match(r"\d+\.\d+", tag) or (tag == "local" and "build" in service)


def test_each_image_can_be_another() -> None:
    """For a mirror, or a newer release."""
    others = services(TEMPORAL_IMAGE="mirror/t:1", POSTGRES_IMAGE="mirror/p:1", ORDERFLOW_IMAGE="mirror/o:1")
    assert {service["image"] for service in others.values()} == {"mirror/t:1", "mirror/p:1", "mirror/o:1"}


@pytest.mark.parametrize("name", SERVERS)
def test_each_server_says_when_it_is_healthy_and_the_worker_waits_for_it(name: str) -> None:
    """Started is not ready."""
    running = services()
    assert running[name]["healthcheck"]["test"][0] == "CMD"
    assert running["worker"]["depends_on"][name]["condition"] == "service_healthy"


def test_workers_share_a_ledger_on_postgres_that_is_migrated_before_they_start() -> None:
    """D02: no SQLite file is shared; who starts and who migrates name one database, and get its password as a file."""
    running = services()
    worker, migrate = running["worker"], running["migrate"]
    assert migrate["command"] == ["db", "upgrade"]
    assert worker["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert migrate["depends_on"]["postgresql"]["condition"] == "service_healthy"
    for service in (worker, migrate):
        assert service["environment"]["ORDERFLOW_LEDGER_URL"] == "postgresql://orderflow@postgresql:5432/orderflow"
        assert service["environment"]["ORDERFLOW_SECRETS_DIR"] == "/run/secrets"
        assert [secret["target"] for secret in service["secrets"]] == ["ORDERFLOW_LEDGER_PASSWORD"]
    assert "volumes" not in worker


def test_the_door_has_its_callers_and_their_secret_as_files_and_waits_for_the_ledger() -> None:
    """W10: no secret stands in the environment, and the door says when it is ready."""
    door = services()["ingress"]
    assert door["environment"]["ORDERFLOW_CALLERS_FILE"] == "/etc/orderflow/callers.json"
    assert [secret["target"] for secret in door["secrets"]] == ["ORDERFLOW_LEDGER_PASSWORD", "caller-secret"]
    assert door["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert "/readyz" in door["healthcheck"]["test"][-1]


@pytest.mark.parametrize("service", services().values(), ids=services().keys())
def test_ports_are_published_on_loopback_only(service: dict[str, Any]) -> None:
    """Whoever reaches the namespace can signal an order: no port is for the network."""
    assert [port for port in service.get("ports", []) if not str(port).startswith("127.0.0.1:")] == []


def test_worker_gets_longer_to_stop_than_it_needs_to_drain() -> None:
    """A claimed effect is finished, not cut off."""
    assert parse_duration(services()["worker"]["stop_grace_period"]) > 60


def test_image_runs_as_a_fixed_user_that_is_not_root() -> None:
    """The last USER is what runs, and volumes are given to its number."""
    users = re.findall(r"^USER\s+(\S+)", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", users[-1])


def test_image_is_built_from_pinned_and_hash_checked_parts() -> None:
    """Nothing is fetched by URL, no base image floats, and packages come through the lock files only."""
    assert re.findall(r"^ADD\b", DOCKERFILE, re.MULTILINE) == []
    assert set(re.findall(r"^FROM\s+(\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    installs = re.findall(r"\binstall (--.+)", DOCKERFILE.replace("\\\n", ""))
    fetching = [line for line in installs if "--no-index" not in line and "--directory" not in line]
    assert fetching
    assert all("--require-hashes" in line for line in fetching)


def test_image_is_told_to_stop_and_gets_the_signal_itself() -> None:
    """In exec form no shell stands between SIGTERM and the worker's drain."""
    assert "\nSTOPSIGNAL SIGTERM\n" in DOCKERFILE
    assert re.search(r'^ENTRYPOINT \["orderflow"\]\nCMD \["worker"\]$', DOCKERFILE, re.MULTILINE)
