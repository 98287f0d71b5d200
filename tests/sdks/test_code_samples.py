"""The samples of code at `/docs`: a server answers those for curl as the document says, and the others compile."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.openapi.code_samples import EXAMPLE_VALUES, LANGUAGES, SERVER, code_samples, sample_requests
from app.api.openapi.document import openapi_document
from developing.environment import SDK_NODE, node
from developing.paths import SDK_VENV
from tests.api.openapi_conformance import check_conformance
from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess, services
from tests.sdks.made import installed
from tests.walks import for_each

DOCUMENT = openapi_document()
SAMPLES = code_samples(DOCUMENT)
OPERATIONS = {operation["operationId"]: operation for operation, _ in sample_requests(DOCUMENT)}
KEY = "pk_" + "made-for-this-test" * 2
TOKEN = re.compile(r"\b\d+\.[0-9a-f]{32}\b")
STATE = "/v1/states/order.17"
MOVES = "/v1/queues/orders/moves"
TIMEOUT_SECONDS = 240
TYPESCRIPT = (
    "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--moduleDetection", "force",
    "--lib", "es2023,dom", "--types", "node",
)  # fmt: skip
"""Options of its compiler. A sample imports nothing, and is a module because it awaits."""


@pytest.fixture(scope="module", params=["without keys", "with keys"])
def server(
    request: pytest.FixtureRequest, run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PeeklockProcess, str | None]]:
    """A server, and its API key if it needs one."""
    key = KEY if request.param == "with keys" else None
    with services(run_resources.with_tables(tmp_path_factory.mktemp("samples"))) as start:
        yield start(**({"bootstrap_key": key} if key else {})), key


@for_each("name", OPERATIONS)
async def test_a_server_answers_the_sample_for_curl_as_documented(
    server: tuple[PeeklockProcess, str | None], name: str
) -> None:
    service, key = server
    if key is None and OPERATIONS[name]["tags"] == ["keys"]:
        return  # the first key would end the use without keys
    with httpx.Client(base_url=service.url, headers=bearer(key), timeout=60) as client:
        command = with_values_of(client, name, SAMPLES[name]["curl"])
    header = f" -H 'Authorization: Bearer {key}'" if key else ""
    answer = answered(command.replace("curl -s", f"curl -si{header}", 1))
    assert str(answer.status_code) in OPERATIONS[name]["responses"], answer.text
    assert answer.is_success, answer.text
    method, path = next(
        (request.method, request.url) for found, request in sample_requests(DOCUMENT) if found["operationId"] == name
    )
    answer.request = httpx.Request(method, path)
    await check_conformance(answer)


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def with_values_of(client: httpx.Client, name: str, command: str) -> str:
    """Make what a sample refers to, and return its command with the values of this server."""
    for path in (
        "queues/orders",
        "queues/invoices",
        "queues/repairs",
        "topics/events",
        "topics/events/subscriptions/eu",
    ):
        assert client.put(f"/v1/{path}", json={}).is_success
    cancel_moves(client)
    version = client.get(STATE).json().get("version", 0)
    if not version:
        written = {"states": [{"key": "order.17", "if_version": 0, "value": 1}]}
        assert client.post("/v1/transactions/execute", json=written).is_success
        version = 1
    command = command.replace(SERVER, str(client.base_url).rstrip("/")).replace(
        '"if_version": 3', f'"if_version": {version}'
    )
    command = TOKEN.sub(lambda _: receive(client)["lock_token"], command)
    if EXAMPLE_VALUES["transaction_id"] in command:
        command = command.replace(EXAMPLE_VALUES["transaction_id"], client.post("/v1/transactions").json()["id"])
    if EXAMPLE_VALUES["key_id"] in command:
        made = client.post("/v1/keys", json={"principal": name, "rights": ["send"]}).json()
        command = command.replace(EXAMPLE_VALUES["key_id"], made["id"])
    if EXAMPLE_VALUES["move_id"] in command:
        command = command.replace(EXAMPLE_VALUES["move_id"], start_move(client)["id"])
    number = send(client)["sequence_number"]  # also for receives, which would wait without a message
    return command.replace(f"/messages/{EXAMPLE_VALUES['sequence_number']}", f"/messages/{number}")


def send(client: httpx.Client) -> Mapping[str, Any]:
    return client.post("/v1/queues/orders/messages", json={"body": {"order": 17}}).json()


def start_move(client: httpx.Client) -> Mapping[str, Any]:
    """Start a move that is so slow that it runs until it is cancelled."""
    for _ in range(2):
        send(client)
    return client.post(MOVES, json={"to_queue": "repairs", "rate_per_second": 0.001}).json()["move"]


def cancel_moves(client: httpx.Client) -> None:
    """Cancel the move that an earlier sample has started: it would take the messages of this one."""
    for move in client.get(MOVES).json()["items"]:
        if move["state"] == "running":
            client.post(f"{MOVES}/{move['id']}/cancel")


def receive(client: httpx.Client) -> Mapping[str, Any]:
    send(client)
    return client.post("/v1/queues/orders/messages/receive", json={}).json()["messages"][0]


def answered(command: str) -> httpx.Response:
    """Run a command in a shell, and return the answer that it prints with its head."""
    done = subprocess.run(["bash", "-euc", command], capture_output=True, check=True, timeout=TIMEOUT_SECONDS)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = [tuple(field.split(": ", 1)) for field in fields]
    return httpx.Response(int(line.split()[1]), headers=headers, content=body)


def test_every_operation_has_a_sample_in_each_language() -> None:
    assert SAMPLES.keys() == OPERATIONS.keys()
    assert {tuple(languages) for languages in SAMPLES.values()} == {tuple(LANGUAGES)}
    assert list(LANGUAGES) == ["curl", "Python", "TypeScript", "Java", "Go"]


@for_each("name", OPERATIONS)
def test_a_sample_in_python_compiles(name: str) -> None:
    compile(SAMPLES[name]["Python"], name, "exec")


def test_the_samples_in_typescript_compile(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(installed(SDK_NODE) / "node_modules")
    files = [write(tmp_path / f"{name}.ts", languages["TypeScript"]) for name, languages in SAMPLES.items()]
    run(node(SDK_VENV), tmp_path / "node_modules/typescript/bin/tsc", *TYPESCRIPT, *files, directory=tmp_path)


@pytest.mark.sdks
def test_the_samples_in_java_compile(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{name}.java", languages["Java"].replace("class Sample ", f"class {name} "))
        for name, languages in SAMPLES.items()
    ]
    run("javac", "-Xlint:all", "-Werror", "-encoding", "UTF-8", "-d", tmp_path / "out", *files, directory=tmp_path)


@pytest.mark.sdks
def test_the_samples_in_go_compile_and_are_formatted(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module example.com/samples\ngo 1.19\n")
    for name, languages in SAMPLES.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / "main.go", languages["Go"])
    assert run("gofmt", "-l", ".", directory=tmp_path) == ""
    run("go", "vet", "./...", directory=tmp_path)


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def run(*command: str | Path, directory: Path) -> str:
    """Run a program, and return what it has printed. The test fails with that if the program fails."""
    done = subprocess.run(
        command,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
