"""Settings: what the environment may say, and one clear line for everything that it may not."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orderflow.domain.errors import InvalidSettings
from orderflow.settings import (
    PostgresTarget,
    Settings,
    SqliteTarget,
    child_environment,
    is_loopback,
    load_settings,
    provider_settings,
)
from tests.definitions import SHIPPED, load


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment, to set variables in; whatever whoever runs the tests has set says nothing here."""
    for name in [name for name in os.environ if name.upper().startswith("ORDERFLOW_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def set_all(env: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set several variables."""
    for name, value in variables.items():
        env.setenv(name, value)


def test_nothing_has_to_be_configured() -> None:
    """The embedded default: everything below one folder."""
    settings = load_settings()
    assert settings.ledger == SqliteTarget(Path(".orderflow/ledger.db"))
    assert settings.private_keys == Path(".orderflow/keys")
    assert (settings.providers, settings.approvers_file, settings.task_queue) == ("simulated", None, "orderflow")


def test_folders_follow_the_state_folder(env: pytest.MonkeyPatch) -> None:
    """One variable moves all of it."""
    env.setenv("ORDERFLOW_STATE_DIR", "~/shop")
    assert load_settings().ledger == SqliteTarget(Path.home() / "shop" / "ledger.db")
    assert load_settings().private_keys == Path.home() / "shop" / "keys"


def test_a_stopping_worker_waits_longer_than_any_attempt_of_the_shipped_definition() -> None:
    """What is claimed is finished, not cut off."""
    steps = load(SHIPPED).steps
    attempts = [step.start_to_close for step in steps] + [
        step.compensation.start_to_close for step in steps if step.compensation
    ]
    longest = max(attempt.timedelta for attempt in attempts if attempt is not None)
    assert timedelta(seconds=load_settings().graceful_shutdown) > longest


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/orderflow/ledger.db", "/var/lib/orderflow/ledger.db"),
        ("sqlite:///data/ledger.db", "data/ledger.db"),
        ("sqlite:///C:/orders/ledger.db", "C:/orders/ledger.db"),
    ],
)
def test_a_ledger_is_named_by_url(url: str, path: str, env: pytest.MonkeyPatch) -> None:
    """Three slashes and a relative path, or four in all."""
    env.setenv("ORDERFLOW_LEDGER_URL", url)
    assert load_settings().ledger == SqliteTarget(Path(path))


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_ledger_on_postgres_is_named_by_url_and_its_password_apart(scheme: str, env: pytest.MonkeyPatch) -> None:
    """What the URL means in full is the driver's to say."""
    set_all(env, {"ORDERFLOW_LEDGER_URL": f"{scheme}://shop@db/orders", "ORDERFLOW_LEDGER_PASSWORD": "hunter2"})
    assert load_settings().ledger == PostgresTarget(f"{scheme}://shop@db/orders", "hunter2", 8)
    set_all(env, {"ORDERFLOW_LEDGER_PASSWORD": "", "ORDERFLOW_LEDGER_CONNECTIONS": "2"})
    assert load_settings().ledger == PostgresTarget(f"{scheme}://shop@db/orders", None, 2)


@pytest.mark.parametrize(
    ("variables", "named", "says"),
    [
        ({"ORDERFLOW_PROVIDERS": "real"}, "ORDERFLOW_PROVIDERS", "must be 'simulated' or 'http'"),
        ({"ORDERFLOW_PROVIDERS": "http"}, "ORDERFLOW_PROVIDERS_URL", "is missing"),
        ({"ORDERFLOW_PROVIDERS_URL": "localhost:8090"}, "ORDERFLOW_PROVIDERS_URL", "http or https address"),
        ({"ORDERFLOW_PROVIDERS_URL": "file:///etc"}, "ORDERFLOW_PROVIDERS_URL", "http or https address"),
        ({"ORDERFLOW_INGRESS_URL": "localhost:8080"}, "ORDERFLOW_INGRESS_URL", "must be an https address"),
        ({"ORDERFLOW_INGRESS_URL": "ftp://localhost"}, "ORDERFLOW_INGRESS_URL", "must be an https address"),
        ({"ORDERFLOW_INGRESS_URL": "https://a@b.example"}, "ORDERFLOW_INGRESS_URL", "without user"),
        ({"ORDERFLOW_INGRESS_URL": "https://b.example/?a"}, "ORDERFLOW_INGRESS_URL", "without user, ? and #"),
        ({"ORDERFLOW_INGRESS_URL": "http://b.example"}, "ORDERFLOW_INGRESS_URL", "must be https"),
        ({"ORDERFLOW_INGRESS_URL": "http://10.0.0.1:8080"}, "ORDERFLOW_INGRESS_URL", "must be https"),
        ({"ORDERFLOW_INGRESS_URL": "http://[::1"}, "ORDERFLOW_INGRESS_URL", "URL"),
        ({"ORDERFLOW_INGRESS_URL": "http://localhost:door"}, "ORDERFLOW_INGRESS_URL", "Port"),
        ({"ORDERFLOW_PROVIDERS_TIMEOUT": "0"}, "ORDERFLOW_PROVIDERS_TIMEOUT", "must be more than 0"),
        ({"ORDERFLOW_PROVIDERS_TIMEOUT": "nan"}, "ORDERFLOW_PROVIDERS_TIMEOUT", "finite number"),
        ({"ORDERFLOW_MAX_CONCURRENT_ACTIVITIES": "many"}, "ORDERFLOW_MAX_CONCURRENT_ACTIVITIES", "integer"),
        ({"ORDERFLOW_MAX_CONCURRENT_ACTIVITIES": "0"}, "ORDERFLOW_MAX_CONCURRENT_ACTIVITIES", "at least 1"),
        ({"ORDERFLOW_WAIT_FOR_SERVER": "-1"}, "ORDERFLOW_WAIT_FOR_SERVER", "at least 0"),
        ({"ORDERFLOW_WAIT_FOR_SERVER": "always"}, "ORDERFLOW_WAIT_FOR_SERVER", "integer"),
        ({"ORDERFLOW_LOG_FORMAT": "xml"}, "ORDERFLOW_LOG_FORMAT", "'auto', 'console' or 'json'"),
        ({"ORDERFLOW_LEDGER_URL": "ledger.db"}, "ORDERFLOW_LEDGER_URL", "sqlite:////absolute/path.db"),
        ({"ORDERFLOW_LEDGER_URL": "sqlite:///:memory:"}, "ORDERFLOW_LEDGER_URL", "sqlite:////absolute/path.db"),
        ({"ORDERFLOW_LEDGER_URL": "mysql://h/db"}, "ORDERFLOW_LEDGER_URL", "sqlite:////absolute/path.db"),
        ({"ORDERFLOW_LEDGER_URL": "postgresq://h/db"}, "ORDERFLOW_LEDGER_URL", "postgresql://user@host:5432/database"),
        ({"ORDERFLOW_LEDGER_CONNECTIONS": "0"}, "ORDERFLOW_LEDGER_CONNECTIONS", "at least 1"),
        ({"ORDERFLOW_LEDGER_PASWORD": "x"}, "ORDERFLOW_LEDGER_PASWORD", "did you mean ORDERFLOW_LEDGER_PASSWORD?"),
        ({"ORDERFLOW_SECRETS_DIR": "/no/such/folder"}, "ORDERFLOW_SECRETS_DIR", "is not a folder"),
        ({"ORDERFLOW_APPROVER_FILE": "a.json"}, "ORDERFLOW_APPROVER_FILE", "did you mean ORDERFLOW_APPROVERS_FILE?"),
        ({"ORDERFLOW_LEDGER_URI": "x"}, "ORDERFLOW_LEDGER_URI", "did you mean ORDERFLOW_LEDGER_URL?"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_a_setting_that_cannot_be_used_is_one_line_that_names_it(
    variables: dict[str, str], named: str, says: str, env: pytest.MonkeyPatch
) -> None:
    """Nothing starts with half a configuration."""
    set_all(env, variables)
    with pytest.raises(InvalidSettings) as refused:
        load_settings()
    assert refused.value.message.startswith(f"{named}: ")
    assert says in refused.value.message
    assert "\n" not in refused.value.message
    assert [problem.path for problem in refused.value.problems] == [named]


def test_all_faults_come_in_one_error(env: pytest.MonkeyPatch) -> None:
    """One look is enough to repair them."""
    set_all(env, {"ORDERFLOW_PROVIDERS": "real", "ORDERFLOW_TASK_QUEUE": "q" * 201, "ORDERFLOW_LEDGER_URL": "x"})
    with pytest.raises(InvalidSettings) as refused:
        load_settings()
    named = {problem.path for problem in refused.value.problems}
    assert named == {"ORDERFLOW_PROVIDERS", "ORDERFLOW_TASK_QUEUE", "ORDERFLOW_LEDGER_URL"}


def test_a_password_is_never_repeated(env: pytest.MonkeyPatch) -> None:
    """Neither in an error nor in what settings print of themselves, wherever it was given."""
    env.setenv("ORDERFLOW_LEDGER_URL", "postgresq://shop:hunter2@db/orders")
    with pytest.raises(InvalidSettings) as refused:
        load_settings()
    assert "hunter2" not in repr(refused.value)
    set_all(env, {"ORDERFLOW_LEDGER_URL": "postgres://a:hunter2@db/orders", "ORDERFLOW_LEDGER_PASSWORD": "hunter2"})
    settings = load_settings()
    assert "hunter2" not in repr(settings) + repr(settings.ledger)


def test_a_process_of_our_own_gets_the_password_as_it_is(env: pytest.MonkeyPatch) -> None:
    """And not the asterisks that stand for it elsewhere."""
    set_all(env, {"ORDERFLOW_LEDGER_URL": "postgres://a@db/orders", "ORDERFLOW_LEDGER_PASSWORD": "hunter2"})
    assert child_environment(load_settings(), temporal_address="x:1")["ORDERFLOW_LEDGER_PASSWORD"] == "hunter2"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost:8080/", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("https://orders.example.com/door/", "https://orders.example.com/door"),
    ],
)
def test_the_door_is_reached_in_private(url: str, base: str, env: pytest.MonkeyPatch) -> None:
    """O01: orders are personal data; in clear only where no network is."""
    env.setenv("ORDERFLOW_INGRESS_URL", url)
    assert load_settings().ingress_url == base


def test_a_process_of_our_own_signs_with_the_same_secret(env: pytest.MonkeyPatch) -> None:
    """W10: and nothing shows it."""
    env.setenv("ORDERFLOW_CALLER_SECRET", "whsec_abc")
    assert "whsec_abc" not in repr(load_settings())
    assert child_environment(load_settings(), temporal_address="localhost:1")["ORDERFLOW_CALLER_SECRET"] == "whsec_abc"


def test_an_empty_variable_is_one_that_is_not_set(env: pytest.MonkeyPatch) -> None:
    """W10: compose files pass them on so."""
    set_all(env, {"ORDERFLOW_APPROVERS_FILE": "", "ORDERFLOW_STATE_DIR": "", "ORDERFLOW_WAIT_FOR_SERVER": ""})
    assert load_settings() == Settings()


def test_somebody_elses_variables_are_left_alone(env: pytest.MonkeyPatch) -> None:
    """Of compose, of an extension's provider, of the tests."""
    names = ("ORDERFLOW_IMAGE", "ORDERFLOW_PROVIDER_S_TIMEOUT", "ORDERFLOW_TEST_MAX_CACHED_WORKFLOWS", "LEDGER_URL")
    set_all(env, dict.fromkeys(names, "x"))
    assert load_settings() == Settings()


def test_an_extension_gets_its_own_settings(env: pytest.MonkeyPatch) -> None:
    """Under the name of its provider."""
    set_all(env, {"ORDERFLOW_PROVIDER_CARRIER_URL": "http://c", "ORDERFLOW_PROVIDER_OTHER_URL": "http://o"})
    assert provider_settings(["carrier", "other"]) == {"carrier": {"url": "http://c"}, "other": {"url": "http://o"}}


def test_a_providers_setting_belongs_to_the_longest_name_that_fits(env: pytest.MonkeyPatch) -> None:
    """Names hold underscores, as keys do."""
    set_all(env, {"ORDERFLOW_PROVIDER_SHIP_KEY_HORIZON": "none", "ORDERFLOW_PROVIDER_SHIP_AIR_URL": "http://a"})
    expected = {"ship": {"key_horizon": "none"}, "ship_air": {"url": "http://a"}}
    assert provider_settings(["ship", "ship_air"]) == provider_settings(["ship_air", "ship"]) == expected


def test_a_providers_setting_may_be_a_file_of_secrets(tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    """Such as its password; the environment counts more, and a process of our own is given both."""
    for key in ("TOKEN", "URL"):
        (tmp_path / f"ORDERFLOW_PROVIDER_CARRIER_{key}").write_text("of-the-file\n")
    set_all(env, {"ORDERFLOW_SECRETS_DIR": str(tmp_path), "ORDERFLOW_PROVIDER_CARRIER_URL": "of-the-environment"})
    assert provider_settings(["carrier"]) == {"carrier": {"token": "of-the-file", "url": "of-the-environment"}}
    child = child_environment(load_settings(), temporal_address="x:1")
    given = {name: value for name, value in child.items() if name.startswith("ORDERFLOW_PROVIDER_")}
    assert given == {
        "ORDERFLOW_PROVIDER_CARRIER_TOKEN": "of-the-file",
        "ORDERFLOW_PROVIDER_CARRIER_URL": "of-the-environment",
    }


def test_a_providers_file_that_cannot_be_read_is_refused(tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    """A folder, or what is no text: one line, and no secret in it."""
    (tmp_path / "ORDERFLOW_PROVIDER_CARRIER_TOKEN").write_bytes(b"hunter2\xff")
    env.setenv("ORDERFLOW_SECRETS_DIR", str(tmp_path))
    with pytest.raises(InvalidSettings, match="ORDERFLOW_SECRETS_DIR: a provider's setting in it cannot be read") as no:
        provider_settings(["carrier"])
    assert "hunter2" not in str(no.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ORDERFLOW_PROVIDER_PAYMENT_LISTS", "ORDERFLOW_PROVIDER_PAYMENTS_LISTS"),
        ("ORDERFLOW_PROVIDER_PAYMENT_KEY_HORIZON", "ORDERFLOW_PROVIDER_PAYMENTS_KEY_HORIZON"),
        ("ORDERFLOW_PROVIDER_SHIPAIR_URL", "ORDERFLOW_PROVIDER_SHIP_AIR_URL"),
        ("ORDERFLOW_PROVIDER_PAYMENTS_", None),
        ("ORDERFLOW_PROVIDER_PAYMENTS", None),
        ("ORDERFLOW_PROVIDER_payments_LISTS", None),
        ("ORDERFLOW_PROVIDER_URL", "ORDERFLOW_PROVIDERS_URL"),
        ("ORDERFLOW_PROVIDER_WAREHOUSE_URL", None),
    ],
)
@pytest.mark.parametrize("is_file", [False, True], ids=["variable", "file"])
def test_a_setting_of_no_provider_is_refused(
    variable: str, meant: str | None, is_file: bool, tmp_path: Path, env: pytest.MonkeyPatch
) -> None:
    """I07: what a provider remembers, told under a misspelt name, would be ignored without a word."""
    env.setenv("ORDERFLOW_SECRETS_DIR", str(tmp_path))
    if is_file:
        (tmp_path / variable).write_text("x")
    else:
        env.setenv(variable, "x")
    with pytest.raises(InvalidSettings) as refused:
        provider_settings(["ship_air", "payments"])
    message = str(refused.value)
    assert message.startswith(f"{variable}: belongs to no provider; there are payments, ship_air")
    assert meant is None or message.endswith(f"; did you mean {meant}?")
    assert [problem.path for problem in refused.value.problems] == [variable]


def test_every_setting_of_no_provider_is_named_at_once(env: pytest.MonkeyPatch) -> None:
    """One line for all of them."""
    variables = ["ORDERFLOW_PROVIDER_A_URL", "ORDERFLOW_PROVIDER_B_URL"]
    set_all(env, {**dict.fromkeys(variables, "x"), "ORDERFLOW_PROVIDER_PAYMENTS_LISTS": "true"})
    with pytest.raises(InvalidSettings) as refused:
        provider_settings(["payments"])
    assert [problem.path for problem in refused.value.problems] == variables
    assert len(str(refused.value).splitlines()) == 1


def test_a_setting_may_be_a_file_of_secrets(tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    """How a container is given what must not stand in its environment; the environment counts more."""
    (tmp_path / "ORDERFLOW_LEDGER_URL").write_text("postgres://a@db/orders\n")
    (tmp_path / "ORDERFLOW_LEDGER_PASSWORD").write_text("hunter2\n")
    (tmp_path / "ORDERFLOW_TASK_QUEUE").write_text("of-the-file")
    set_all(env, {"ORDERFLOW_SECRETS_DIR": str(tmp_path), "ORDERFLOW_TASK_QUEUE": "of-the-environment"})
    assert load_settings().ledger == PostgresTarget("postgres://a@db/orders", "hunter2", 8)
    assert load_settings().task_queue == "of-the-environment"


def test_a_misspelt_file_of_secrets_is_refused_like_a_variable(tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    """A secret that nobody reads would go unnoticed until it is missed; other files are somebody else's."""
    for name in ("ORDERFLOW_LEDGER_URI", "tls.key"):
        (tmp_path / name).write_text("x")
    env.setenv("ORDERFLOW_SECRETS_DIR", str(tmp_path))
    with pytest.raises(InvalidSettings, match=r"ORDERFLOW_LEDGER_URI: .* did you mean ORDERFLOW_LEDGER_URL"):
        load_settings()


def test_a_flag_counts_more_than_the_environment(env: pytest.MonkeyPatch) -> None:
    """As everybody expects."""
    env.setenv("ORDERFLOW_TASK_QUEUE", "of-the-environment")
    assert load_settings(task_queue="of-the-flag").task_queue == "of-the-flag"


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("90", 90), ("forever", None)])
def test_a_worker_waits_for_the_server_as_asked(text: str, seconds: int | None, env: pytest.MonkeyPatch) -> None:
    """Not at all, for some seconds, or without end."""
    env.setenv("ORDERFLOW_WAIT_FOR_SERVER", text)
    assert load_settings().wait_for_server == seconds


def test_settings_do_not_change() -> None:
    """Read once, when a process starts."""
    with pytest.raises(ValidationError):
        load_settings().task_queue = "other"  # type: ignore[misc]  # that is the case


@pytest.mark.parametrize(
    "address",
    ["localhost:7233", "LOCALHOST:7233", "localhost", "127.0.0.1:7233", "127.0.0.1", "127.8.9.10:1", "[::1]:7233"],
)
def test_this_machine_is_loopback(address: str) -> None:
    """127.0.0.0/8, `::1`, `localhost`."""
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "temporal:7233",
        "10.0.0.1:7233",
        "0.0.0.0:7233",
        "127.0.0.1.example.com:7233",
        "localhost.example.com:7233",
        "localhost@example.com:7233",
        "example.com:7233#localhost",
        "2130706433:7233",
        "0x7f.1:7233",
        "[::2]:7233",
        "http://localhost:7233",
    ],
)
def test_any_other_address_is_not(address: str) -> None:
    """Where anything might answer, nothing is made up."""
    assert not is_loopback(address)


@given(st.text())
def test_any_text_is_loopback_or_not(address: str) -> None:
    """It decides whether development keys may exist, so it must not fail."""
    assert is_loopback(address) in {True, False}
