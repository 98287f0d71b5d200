"""docs/sqs.md and the guides: the programs for AWS SDKs and Celery do with Peeklock what the pages say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from developing.environment import SQS_NODE, node
from tests.docs.other_brokers import Programs, nightly_blocks, shown_output
from tests.docs.pages import PAGES
from tests.docs.test_other_brokers import CELERY, SQS
from tests.guides import GUIDE_ADDRESS
from tests.peeklock_process import PeeklockProcess, environment
from tests.servers import TIMEOUT_SECONDS

PAGE = "sqs.md"
KEY = "pk_of_a_test_of_aws_sdks_0123456789"
SHOP = {"principal": "shop", "rights": ["send", "listen", "browse", "manage"], "patterns": ["*"]}
BROKER_OF_CELERY = 'app = Celery("shop", broker="redis://localhost:6379/0")\n'
CALL = "from shop import send_invoice\n\nsend_invoice.delay(17)\n"

pytestmark = pytest.mark.nightly

Start = Callable[..., PeeklockProcess]


@pytest.fixture
def service(serve: Start) -> PeeklockProcess:
    """A server that needs signatures."""
    return serve(bootstrap_key=KEY, sqs_secret="0123456789abcdef" * 2)


@pytest.fixture
def credentials(service: PeeklockProcess) -> dict[str, str]:
    """What a program has in its environment."""
    headers = {"Authorization": f"Bearer {KEY}"}
    key = httpx.post(f"{service.url}/v1/keys", json=SHOP, headers=headers).raise_for_status().json()
    return {"AWS_ACCESS_KEY_ID": key["id"], "AWS_SECRET_ACCESS_KEY": key["sqs_secret_access_key"]}


def programs(page: str, service: PeeklockProcess, directory: Path) -> Programs:
    return Programs(page, directory, {GUIDE_ADDRESS: service.url.removeprefix("http://")})


def counts(service: PeeklockProcess, queue: str) -> int:
    """Return how many messages a queue has."""
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.get(f"{service.url}/v1/queues/{queue}", headers=headers).raise_for_status().json()
    return sum(answer["counts"].values())


def test_boto3_receives_and_deletes_what_it_sends(
    service: PeeklockProcess, credentials: Mapping[str, str], tmp_path: Path
) -> None:
    assert programs(PAGE, service, tmp_path).run("orders.py", credentials) == "order 17\n"
    assert counts(service, "boto3-orders") == 0


def test_the_sdk_for_javascript_receives_and_deletes_what_it_sends(
    service: PeeklockProcess, credentials: Mapping[str, str], tmp_path: Path
) -> None:
    programs(PAGE, service, tmp_path)
    (tmp_path / "node_modules").symlink_to(SQS_NODE / "node_modules")
    done = subprocess.run(
        [node(), "orders.mjs"],
        cwd=tmp_path,
        env={**environment(), **credentials},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "order 17\n"), done.stderr
    assert counts(service, "javascript-orders") == 0


def test_a_program_for_sqs_needs_another_address_and_nothing_else(
    service: PeeklockProcess, credentials: Mapping[str, str], tmp_path: Path
) -> None:
    program = programs(SQS, service, tmp_path)
    variables = {**credentials, "AWS_ENDPOINT_URL_SQS": service.url, "AWS_DEFAULT_REGION": "eu-west-1"}
    program.save("create.py", 'import boto3\n\nboto3.client("sqs").create_queue(QueueName="sqs-orders")\n')
    program.run("create.py", variables)
    assert program.run("sample.py", variables) == shown_output(SQS)
    assert counts(service, "sqs-orders") == 0


def test_celery_sends_and_runs_its_tasks_through_the_interface(
    service: PeeklockProcess, credentials: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run_task(programs(PAGE, service, tmp_path), credentials, monkeypatch)
    assert counts(service, "shop-tasks") == 0


def test_the_task_of_the_guide_needs_another_broker_and_nothing_else(
    service: PeeklockProcess, credentials: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs(CELERY, service, tmp_path)
    [broker, *_] = nightly_blocks(CELERY)
    before = next(block.text for block in nightly_blocks(CELERY) if block.file == "shop.py")
    assert BROKER_OF_CELERY in before
    program.save("shop.py", before.replace(BROKER_OF_CELERY, broker.text))
    _run_task(program, credentials, monkeypatch)
    assert counts(service, "celery") == 0


def _run_task(program: Programs, credentials: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the task of `shop.py`, run it in a worker, and end the worker, which then has deleted the message."""
    program.save("call.py", CALL)
    assert program.run("call.py", credentials) == ""
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    with program.running("-m", "celery", "--app=shop", "worker", "--pool=solo") as lines:
        assert any(line.endswith("invoice for order 17\n") for line in lines)


def test_each_program_of_the_page_is_run_here() -> None:
    assert {block.file for block in nightly_blocks(PAGE)} == {"orders.py", "orders.mjs", "shop.py"}
    assert PAGE in PAGES
