"""The CronJobs of the pipeline: each runs a command that exists, on the lake and with the secrets that the values name."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest
import typer.main
from peeklock_pipeline import cli
from peeklock_pipeline.job_app import CRASHED, REFUSED, TERMINATED

from tests.chart.release import (
    ALL_OPTIONS,
    COMPONENT,
    NAMESPACE,
    REQUIRED,
    Release,
    chart,
    environment,
    example,
    render,
)

IMAGE = {"repository": "registry.example.com/pipeline"}
DEFAULT_JOBS = {"export", "audit", "full-audit", "compact", "vacuum"}
AUDITS = {"audit", "full-audit"}


def values(**pipeline: Any) -> dict[str, Any]:
    """Values that enable the pipeline."""
    return {**REQUIRED, "pipeline": {"enabled": True, "image": IMAGE, **pipeline}}


def template(job: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of a job's pod."""
    return job["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def container(job: dict[str, Any]) -> dict[str, Any]:
    """Return the container of a job."""
    (found,) = template(job)["containers"]
    return found


@pytest.fixture(scope="module")
def everything() -> Release:
    return render(ALL_OPTIONS)


@pytest.fixture(scope="module")
def on_volume() -> Release:
    """The pipeline as it is with nothing but its image."""
    return render(values())


def test_without_a_value_there_is_no_pipeline() -> None:
    assert [
        document for document in render(REQUIRED).documents if document["metadata"]["labels"][COMPONENT] == "pipeline"
    ] == []


def test_jobs_that_remove_messages_or_cost_more_run_only_if_a_value_says_so(on_volume: Release) -> None:
    assert on_volume.jobs().keys() == DEFAULT_JOBS
    assert render(example("pipeline")).jobs().keys() == DEFAULT_JOBS | {"snapshot", "retention"}
    off = {"jobs": {name: {"enabled": False} for name in ("export", "audit", "fullAudit", "compact", "vacuum")}}
    assert render(values(**off)).jobs() == {}


@pytest.mark.parametrize("shown", ["everything", "on_volume"])
def test_every_job_is_a_command_with_options_that_it_has(shown: str, request: pytest.FixtureRequest) -> None:
    commands = typer.main.get_command(cli.app).commands  # pyright: ignore[reportAttributeAccessIssue]
    release: Release = request.getfixturevalue(shown)
    for name, job in release.jobs().items():
        command, *words = container(job)["args"]
        given = [*words]
        if "PEEKLOCK_DATABASE_URL" in {parameter.envvar for parameter in commands[command].params}:
            given.append("--database-url=postgresql://host/database")
        with commands[command].make_context(command, given) as context:
            assert context.params["lake"] is not None
        assert command == ("audit" if name in AUDITS else name)
        assert job["metadata"]["name"].endswith(f"-{name}")


def test_audits_read_what_is_new_every_day_and_all_messages_every_week(everything: Release) -> None:
    daily, weekly = (everything.jobs()[name] for name in ("audit", "full-audit"))
    assert "--from-scratch" not in container(daily)["args"]
    assert container(weekly)["args"][:2] == ["audit", "--from-scratch"]
    assert container(weekly)["args"][2:] == container(daily)["args"][1:]
    assert [job["spec"]["schedule"].split()[2:] for job in (daily, weekly)] == [["*", "*", "*"], ["*", "*", "0"]]


def test_every_job_has_limits_in_time_and_never_runs_beside_itself(everything: Release) -> None:
    schedules = {job["spec"]["schedule"] for job in everything.jobs().values()}
    assert len(schedules) == len(everything.jobs()) == 8
    for job in everything.jobs().values():
        spec, work = job["spec"], job["spec"]["jobTemplate"]["spec"]
        assert (spec["concurrencyPolicy"], spec["timeZone"]) == ("Forbid", "Etc/UTC")
        assert (spec["startingDeadlineSeconds"], work["backoffLimit"]) == (600, 2)
        assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (1, 3)
        assert 60 <= work["activeDeadlineSeconds"] <= 43200
        assert template(job)["restartPolicy"] == "Never"
        assert container(job)["resources"]["limits"].keys() == {"memory"}
        assert job["metadata"]["namespace"] == NAMESPACE


def test_an_export_ends_before_the_next_one_is_due(on_volume: Release) -> None:
    assert on_volume.jobs()["export"]["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 3600


def test_values_of_a_job_reach_it() -> None:
    resources = {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}
    export = {"schedule": "*/5 * * * *", "activeDeadlineSeconds": 240, "resources": resources}
    limits = {
        "startingDeadlineSeconds": 60, "backoffLimit": 0, "successfulJobsHistoryLimit": 4, "failedJobsHistoryLimit": 5,
    }  # fmt: skip
    job = render(values(jobs={"export": export}, **limits)).jobs()["export"]
    assert job["spec"]["schedule"] == "*/5 * * * *"
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 240
    assert job["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert {name: job["spec"][name] for name in limits if name in job["spec"]} == {
        name: value for name, value in limits.items() if name != "backoffLimit"
    }
    assert container(job)["resources"] == resources


def test_only_an_audit_with_findings_is_not_tried_again(everything: Release) -> None:
    for name, job in everything.jobs().items():
        policy = job["spec"]["jobTemplate"]["spec"].get("podFailurePolicy")
        assert (policy is not None) == (name in AUDITS)
    for name in AUDITS:
        (rule,) = everything.jobs()[name]["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
        assert (rule["action"], rule["onExitCodes"]) == (
            "FailJob", {"containerName": name, "operator": "In", "values": [1]},
        )  # fmt: skip
        assert {REFUSED, CRASHED, TERMINATED}.isdisjoint(rule["onExitCodes"]["values"])


def test_the_database_url_comes_from_its_own_secret_or_the_servers(everything: Release, on_volume: Release) -> None:
    for release, secret in ((everything, "reader"), (on_volume, REQUIRED["existingSecret"])):
        for job in release.jobs().values():
            reference = environment(container(job))["PEEKLOCK_DATABASE_URL"]["valueFrom"]["secretKeyRef"]
            assert reference == {"name": secret, "key": "database-url"}


def test_a_lake_with_a_uri_needs_no_volume(everything: Release) -> None:
    assert all(
        claim["metadata"]["labels"][COMPONENT] != "pipeline" for claim in everything.all("PersistentVolumeClaim")
    )
    for job in everything.jobs().values():
        args = container(job)["args"]
        assert {"--lake=s3://example/lake", "--storage-option=AWS_REGION=eu-central-1"} <= {*args}
        assert container(job)["envFrom"] == [{"secretRef": {"name": "lake-access"}}]
        assert {volume["name"] for volume in template(job)["volumes"]} == {"tmp", "ca"}
    assert "--out=/tmp/report.html" in container(everything.jobs()["report"])["args"]


def test_a_uri_of_azure_names_container_and_account() -> None:
    uri = "abfss://lake@account.dfs.core.windows.net/peeklock"
    for job in render(values(lake={"uri": uri})).jobs().values():
        assert f"--lake={uri}" in container(job)["args"]


def test_a_lake_without_a_uri_is_a_directory_of_a_volume_that_outlives_the_release(on_volume: Release) -> None:
    claim = on_volume.one("PersistentVolumeClaim", "pipeline")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Gi"}}}
    for job in on_volume.jobs().values():
        assert "--lake=/volume/lake" in container(job)["args"]
        assert "envFrom" not in container(job)
        assert {"name": "lake", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in template(job)[
            "volumes"
        ]
        assert {"name": "lake", "mountPath": "/volume"} in container(job)["volumeMounts"]
    page = render(values(jobs={"report": {"enabled": True}})).jobs()["report"]
    assert "--out=/volume/report.html" in container(page)["args"]


def test_a_claim_of_the_operator_is_used() -> None:
    release = render(values(lake={"existingClaim": "history"}))
    assert release.all("PersistentVolumeClaim") == []
    assert template(release.jobs()["export"])["volumes"][1]["persistentVolumeClaim"] == {"claimName": "history"}
    lake = {"size": "1Ti", "storageClassName": "shared", "accessMode": "ReadWriteMany"}
    claim = render(values(lake=lake)).one("PersistentVolumeClaim", "pipeline")["spec"]
    assert (claim["accessModes"], claim["storageClassName"]) == (["ReadWriteMany"], "shared")
    assert claim["resources"]["requests"]["storage"] == "1Ti"


def test_jobs_have_an_account_of_their_own_for_the_rights_of_a_cloud(everything: Release) -> None:
    account = everything.one("ServiceAccount", "pipeline")
    assert account["metadata"]["annotations"] == {"example.com/role": "lake"}
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["name"] != everything.one("ServiceAccount")["metadata"]["name"]
    for job in everything.jobs().values():
        assert template(job)["serviceAccountName"] == account["metadata"]["name"]
        metadata = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]
        assert metadata["labels"]["example.com/identity"] == "lake"
        assert metadata["annotations"] == {"example.com/note": "lake"}
    shared = render(values(serviceAccount={"create": False, "name": "shared"}))
    assert [account["metadata"]["labels"][COMPONENT] for account in shared.all("ServiceAccount")] == ["server"]
    assert template(shared.jobs()["export"])["serviceAccountName"] == "shared"


def test_spark_has_the_threads_and_the_memory_of_the_values(everything: Release) -> None:
    for job in everything.jobs().values():
        given = environment(container(job))
        assert given["PEEKLOCK_PIPELINE_MASTER"]["value"] == "local[3]"
        assert given["PYSPARK_SUBMIT_ARGS"]["value"] == "--driver-memory 2g pyspark-shell"
        assert given["TZ"]["value"] == "UTC"
        assert "--push-gateway=http://pushgateway:9091" in container(job)["args"]
        assert {"/tmp", "/etc/database-ca"} == {mount["mountPath"] for mount in container(job)["volumeMounts"]}


def test_nothing_reaches_the_jobs_and_they_reach_what_the_values_name(everything: Release) -> None:
    policy = everything.one("NetworkPolicy", "pipeline")["spec"]
    selector = policy["podSelector"]["matchLabels"]
    labels = [
        job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"] for job in everything.jobs().values()
    ]
    assert all(selector.items() <= each.items() for each in labels)
    assert not any(
        selector.items() <= pod["metadata"]["labels"].items()
        for pod in everything.pods()
        if pod["metadata"]["labels"][COMPONENT] != "pipeline"
    )
    assert (policy["policyTypes"], policy.get("ingress")) == (["Ingress", "Egress"], None)
    dns, *allowed = policy["egress"]
    assert {entry["port"] for entry in dns["ports"]} == {53}
    assert allowed == ALL_OPTIONS["pipeline"]["egress"]
    unlimited = render({**values(), "networkPolicy": {"enabled": True}}).one("NetworkPolicy", "pipeline")["spec"]
    assert unlimited["policyTypes"] == ["Ingress"]


def test_names_of_jobs_leave_room_for_what_kubernetes_adds() -> None:
    release = render({**ALL_OPTIONS, "fullnameOverride": "n" * 80})
    names = [job["metadata"]["name"] for job in release.all("CronJob")]
    assert len({*names}) == 8
    assert all(len(name) <= 52 for name in names)


def test_the_image_is_chosen_by_tag_or_digest(everything: Release, on_volume: Release) -> None:
    assert container(everything.jobs()["export"])["image"] == "registry.example.com/pipeline:2.0"
    assert container(on_volume.jobs()["export"])["image"].startswith("registry.example.com/pipeline:")
    digest = render(values(image={**IMAGE, "digest": "sha256:" + "c" * 64}))
    assert container(digest.jobs()["audit"])["image"] == "registry.example.com/pipeline@sha256:" + "c" * 64


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({**values(), "mode": "embedded"}, "cannot read the SQLite file of a server"),
        ({**REQUIRED, "pipeline": {"enabled": True}}, "where you pushed the image of pipeline/Dockerfile"),
        (values(jobs={"retention": {"enabled": True}}), "older messages are removed from the lake for ever"),
        (values(jobs={"vacuum": {"olderThan": "soon"}}), "/pipeline/jobs/vacuum/olderThan"),
        (values(jobs={"export": {"schedule": "hourly"}}), "/pipeline/jobs/export/schedule"),
        (values(jobs={"export": {"activeDeadlineSeconds": 0}}), "/pipeline/jobs/export/activeDeadlineSeconds"),
        (values(jobs={"trim": {"enabled": True}}), "'trim' not allowed"),
        (values(lake={"uri": "/srv/lake"}), "/pipeline/lake/uri"),
        (values(lake={"uri": "s3://key:secret@bucket/lake"}), "/pipeline/lake/uri"),
        (values(lake={"uri": "abfss://lake:secret@account.dfs.core.windows.net/lake"}), "/pipeline/lake/uri"),
        (values(lake={"uri": "abfss://lake@account.dfs.core.windows.net/lake?sig=secret"}), "/pipeline/lake/uri"),
        (values(lake={"storageOptions": {"AWS_SECRET_ACCESS_KEY": "x"}}), "AWS_SECRET_ACCESS_KEY"),
        (values(lake={"storageOptions": {"azure_storage_account_key": "x"}}), "azure_storage_account_key"),
        (values(lake={"storageOptions": {"aws_sse_customer_key_base64": "x"}}), "aws_sse_customer_key_base64"),
        (values(lake={"storageOptions": {"AZURE_STORAGE_MASTER_KEY": "x"}}), "AZURE_STORAGE_MASTER_KEY"),
        (values(pushGateway="http://pusher:secret@gateway:9091"), "/pipeline/pushGateway"),
        (values(extraEnv=[{"name": "PEEKLOCK_DATABASE_URL", "value": "x"}]), "come from existingSecret"),
        (values(threads=0), "/pipeline/threads"),
        (values(driverMemory="much"), "/pipeline/driverMemory"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_work_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=sentence):
        render(given)


IN_STORAGE_SECRET = "come from the Secret that pipeline.lake.storageSecret names"
SECRET = "xKcd7Zq"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--storage-option", f"AWS_SECRET_ACCESS_KEY={SECRET}"], IN_STORAGE_SECRET),
        ([f"--storage-option=aws_session_token={SECRET}"], IN_STORAGE_SECRET),
        ([f"--storage-option=azure_storage_sas_key={SECRET}"], IN_STORAGE_SECRET),
        ([f"--database-url=postgresql://reader:{SECRET}@db/queue"], "pipeline.databaseSecret or existingSecret names"),
        (["--database-url", "postgresql://reader@db/queue"], "pipeline.databaseSecret or existingSecret names"),
        ([f"--push-gateway=http://pusher:{SECRET}@gateway:9091"], "PEEKLOCK_PIPELINE_PUSH_GATEWAY"),
        (["--push-gateway", f"http://pusher:{SECRET}/x@gateway:9091"], "PEEKLOCK_PIPELINE_PUSH_GATEWAY"),
    ],
    ids=str,
)
@pytest.mark.parametrize("job", chart().values["pipeline"]["jobs"])
def test_credentials_in_arguments_are_refused_and_not_printed(job: str, arguments: list[str], sentence: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=sentence) as refused:
        render(values(jobs={job: {"arguments": arguments}}))
    assert SECRET not in str(refused.value)


SECRET_NAMES = (
    "azure_client_secret", "AZURE_STORAGE_CLIENT_SECRET", "s3_password", "AWS_SESSION_TOKEN", "azure_storage_sas_token",
    "AWS_ACCESS_KEY_ID", "accesskey", "azure_storage_account_key", "AccountKey", "aws_sse_customer_key_base64",
    "AZURE_STORAGE_MASTER_KEY", "masterkey", "azure_storage_sas_key", "SASKEY", "GOOGLE_APPLICATION_CREDENTIALS",
    "credential",
)  # fmt: skip
"""Names of options of object stores, and of what they may be called, that are credentials."""


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_credentials_of_the_object_store_in_plain_text_are_refused(name: str) -> None:
    for arguments in ([f"{name}={SECRET}"], ["--json", f"--storage-option={name}={SECRET}"]):
        assert SECRET not in refusal(IN_STORAGE_SECRET, jobs={"export": {"arguments": arguments}})
    assert SECRET not in refusal(IN_STORAGE_SECRET, extraEnv=[{"name": "TZ"}, {"name": name, "value": SECRET}])
    assert SECRET not in refusal(name, lake={"storageOptions": {"AWS_REGION": "x", name: SECRET}})


def refusal(sentence: str, **pipeline: Any) -> str:
    """Return what the chart says of values of the pipeline that it refuses with this sentence."""
    with pytest.raises(helm_python.HelmValuesError, match=sentence) as refused:
        render(values(**pipeline))
    return str(refused.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"jobs": {"export": {"arguments": ["--json", ""]}}}, "/pipeline/jobs/export/arguments/1.*minLength"),
        ({"jobs": {"vacuum": {"arguments": [""]}}}, "/pipeline/jobs/vacuum/arguments/0.*minLength"),
        ({"jobs": {"export": {"arguments": [7]}}}, "/pipeline/jobs/export/arguments/0"),
        ({"extraEnv": [{"name": ""}]}, "/pipeline/extraEnv/0/name"),
        ({"extraEnv": [{"name": "2ND"}]}, "/pipeline/extraEnv/0/name"),
        ({"extraEnv": [{"name": "A B"}]}, "/pipeline/extraEnv/0/name"),
        ({"extraEnv": [{"value": "x"}]}, "/pipeline/extraEnv/0"),
        ({"extraEnv": [{"name": "A", "value": 7}]}, "/pipeline/extraEnv/0/value"),
        ({"extraVolumes": [{"name": ""}]}, "/pipeline/extraVolumes/0/name.*minLength"),
        ({"extraVolumeMounts": [{"mountPath": "/x"}]}, "/pipeline/extraVolumeMounts/0"),
    ],
    ids=str,
)
def test_what_is_no_argument_variable_or_volume_is_refused_by_its_path(given: dict[str, Any], place: str) -> None:
    refusal(place, **given)


def test_other_arguments_and_references_to_secrets_reach_a_job() -> None:
    given = [
        "--storage-option=AWS_REGION=eu-central-1", "--storage-option", "AWS_ENDPOINT_URL=http://minio:9000",
        "--queue=secret=orders", "--out", "abfss://pages@account.dfs.core.windows.net/report.html",
    ]  # fmt: skip
    options = dict.fromkeys(("aws_sse_kms_key_id", "aws_sse_bucket_key_enabled", "azure_storage_account_name"), "x")
    given += [f"--storage-option={name}=x" for name in options]
    source = {"secretKeyRef": {"name": "lake-access", "key": "secret"}}
    entry = {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": source}
    lake = {"uri": "s3://bucket/lake", "storageOptions": options}
    extra = [entry, *({"name": name, "value": "x"} for name in options)]
    job = render(values(jobs={"export": {"arguments": given}}, lake=lake, extraEnv=extra)).jobs()["export"]
    assert container(job)["args"][-len(given) :] == given
    assert environment(container(job))["AWS_SECRET_ACCESS_KEY"] == {"valueFrom": source} | {"name": entry["name"]}
