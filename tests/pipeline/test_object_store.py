"""A lake in an object store: the jobs of a day work there, commits exclude each other, and lost answers do no harm."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.compact import remove_unreferenced
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.refusals import BadLake, BadOption, LakeUnavailable
from peeklock_pipeline.storage import Storage, parse_options
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.tables import Change, ExportPosition
from pyspark.sql import SparkSession

from tests.databases import RunResources
from tests.docs.other_brokers import serving
from tests.pipeline.archive import DAY, NOON, Archive, archived, live
from tests.pipeline.conftest import RunCommand
from tests.pipeline.faulty_store import FaultyStore
from tests.pipeline.object_store import AzureStore, ObjectStore
from tests.servers import free_port

COMMITTERS = 4
MEGABYTES = 25
"""More than one request writes."""

WITHOUT_SPARK = pytest.mark.parametrize(
    "object_store", ["s3", "google", pytest.param("azure", marks=pytest.mark.nightly)], indirect=True
)
"""Every run has these tests with each store that needs no installation of its own."""


def test_the_jobs_of_a_day_work_on_a_lake_in_an_object_store(
    run_command: RunCommand, small_archive: Archive, object_store: ObjectStore, tmp_path: Path
) -> None:
    uri = str(object_store.lake().root)
    lake = ("--lake", uri, *object_store.words)
    both = (*lake, "--database-url", small_archive.url)

    for number in (1, 2):
        days = [NOON, NOON + DAY]
        rows = [archived(number * 10 + n, settled_at=days[n % 2], queue=f"queue-{n % 3}") for n in range(6)]
        small_archive.seal(number, rows)
        assert run_command("export", *both)[1].startswith(f"6 messages in 1 batch went into {uri}.")
    small_archive.add_to_queue(1, "orders", [live(99)])
    assert run_command("snapshot", *both)[0] == 0
    code, out, err = run_command("audit", *both)
    assert (code, out.partition(" = ")[0]) == (0, "No message is lost or duplicated: 13 accepted"), err
    assert run_command("compact", *lake)[1].startswith("4 files before, 2 now")
    page = tmp_path / "report.html"
    assert run_command("report", *lake, "--out", page)[0] == 0
    assert "13" in page.read_text()
    words = ("--older-than", "0d", "--queue", "queue-1", "--json")
    assert json.loads(run_command("retention", *lake, *words)[1])["messages"] == 4
    assert run_command("vacuum", *lake, "--older-than", "1h")[1] == f"Removed 0 files with 0 bytes from {uri}.\n"
    code, out, err = run_command("audit", *both)
    assert (code, out.splitlines()[-1].partition(" = ")[0]) == (0, "No message is lost or duplicated: 13 accepted"), err


def test_vacuum_removes_files_of_an_object_store(
    spark: SparkSession, small_archive: Archive, remote_lake: Lake
) -> None:
    small_archive.seal(1, [archived(1), archived(2)])
    database = Database.from_url(small_archive.url)
    export(spark, database, remote_lake)
    [left] = write(database.read(1, 1), remote_lake.directory(ARCHIVE), ARCHIVE)  # as a crash leaves it

    removed = remove_unreferenced(remote_lake, hours=0)

    assert (removed.files, removed.bytes) == (1, left.size)
    assert remote_lake.read(spark).count() == 2


def test_vacuum_removes_files_with_any_name(small_archive: Archive, s3_store: ObjectStore) -> None:
    lake = s3_store.lake()
    small_archive.seal(1, [archived(1)])
    lake.append(ARCHIVE, list(write(Database.from_url(small_archive.url).read(1, 1), lake.directory(ARCHIVE), ARCHIVE)))
    odd = f"{lake.directory(ARCHIVE)}/queue=a%20b/ä b.parquet".partition("s3://")[2]
    httpx.put(f"{s3_store.url}/{quote(odd)}", content=b"old", timeout=60).raise_for_status()

    removed = remove_unreferenced(lake, hours=0)

    assert (removed.files, removed.bytes) == (1, len("old"))
    assert remove_unreferenced(lake, hours=0).files == 0


@WITHOUT_SPARK
def test_of_several_commits_at_once_one_succeeds(small_archive: Archive, remote_lake: Lake) -> None:
    database = Database.from_url(small_archive.url)
    numbers = range(1, 6)
    for number in numbers:
        small_archive.seal(number, [archived(number)])

    def commit(number: int, ready: Barrier) -> bool:
        lake, rows = Lake(remote_lake.root), database.read(number, number)
        files = list(write(rows, lake.directory(ARCHIVE), ARCHIVE))
        after = ExportPosition(number - 1, NOON + number - 1) if number > 1 else ExportPosition()
        ready.wait()
        return lake.add_batches(files, after, ExportPosition(number, NOON + number), 1)

    with ThreadPoolExecutor(COMMITTERS) as committers:
        for number in numbers:
            ready = Barrier(COMMITTERS)
            won = list(committers.map(commit, [number] * COMMITTERS, [ready] * COMMITTERS))
            assert Counter(won) == {True: 1, False: COMMITTERS - 1}
    assert sum(file.rows for file in files_of(remote_lake.archive_table())) == len(numbers)


@WITHOUT_SPARK
def test_a_large_file_is_written_in_parts_and_read_in_ranges(remote_lake: Lake) -> None:
    files = remote_lake.root.filesystem()
    written = pa.table({"body": [Random(number).randbytes(1 << 20) for number in range(MEGABYTES)]})
    with files.open_output_stream("large.parquet") as stream:
        pq.write_table(written, stream, row_group_size=MEGABYTES // 5)
    with files.open_input_file("large.parquet") as stream:
        assert pq.ParquetFile(stream).read_row_group(3) == written.slice(MEGABYTES // 5 * 3, MEGABYTES // 5)


def test_a_commit_of_files_that_were_removed_is_refused(small_archive: Archive, remote_lake: Lake) -> None:
    small_archive.seal(1, [archived(1), archived(2, settled_at=NOON + DAY)])
    place, rows = remote_lake.directory(ARCHIVE), Database.from_url(small_archive.url).read(1, 1)
    remote_lake.append(ARCHIVE, [*write(rows, place, ARCHIVE), *write(rows, place, ARCHIVE)])
    kept, lost = write(rows, place, ARCHIVE)
    place.filesystem().delete_file(lost.path)
    with pytest.raises(BadLake, match=f"{lost.path} was removed before this job could commit it"):
        remote_lake.append(ARCHIVE, [kept, lost])
    remote_lake.append(ARCHIVE, [kept])
    assert remote_lake.archive_table().version() == 1


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_an_export_survives_the_loss_of_a_commit_or_of_its_answer(
    spark: SparkSession, small_archive: Archive, object_store: ObjectStore, run_resources: RunResources, lost: str
) -> None:
    database = Database.from_url(small_archive.url)
    place = object_store.lake()
    small_archive.seal(1, [archived(1)])
    export(spark, database, place)
    small_archive.seal(2, [archived(2)])
    store = FaultyStore(run_resources.new_directory(), object_store.url)
    with serving(store):
        lake = Lake(str(place.root), object_store.behind(store.url).options)
        store.lose(lost)
        assert export(spark, database, lake).messages == 1
        assert store.lost() == lost
    assert audit(spark, database, place).findings == []
    assert [file.rows for file in files_of(place.archive_table())] == [1, 1]


def test_a_removal_survives_the_loss_of_the_answer_to_its_commit(
    spark: SparkSession, small_archive: Archive, object_store: ObjectStore, run_resources: RunResources
) -> None:
    database = Database.from_url(small_archive.url)
    place = object_store.lake()
    small_archive.seal(1, [archived(1), archived(2, settled_at=NOON + DAY)])
    export(spark, database, place)
    store = FaultyStore(run_resources.new_directory(), object_store.url)

    class Losing(Lake):
        def remove(self, change: Change, removal: str, *rest: Any) -> None:
            store.lose("answer")
            super().remove(change, removal, *rest)

    with serving(store):
        lake = Losing(str(place.root), object_store.behind(store.url).options)
        assert retention(spark, lake, date(2026, 9, 22)).messages == 1
        assert store.lost() == "answer"
    assert audit(spark, database, place).findings == []


@WITHOUT_SPARK
def test_an_object_store_that_does_not_answer_is_named(object_store: ObjectStore) -> None:
    silent = object_store.behind(f"http://127.0.0.1:{free_port()}")
    uri, unknown = object_store.uri("lake"), object_store.uri("lake", "nowhere")
    with pytest.raises(LakeUnavailable, match=f"{uri} cannot be read or written: .*error sending request"):
        Lake(uri, {**silent.options, "max_retries": "0"})
    with pytest.raises(LakeUnavailable, match=f"{unknown} cannot be read or written: .*{object_store.missing}"):
        Lake(unknown, object_store.options)


@pytest.mark.parametrize(
    ("place", "uri"),
    [
        ("/srv/lake", "/srv/lake"),
        ("file:///srv/a%20lake", "/srv/a lake"),
        ("s3://bucket/lake/", "s3://bucket/lake"),
        ("gs://bucket/lake", "gs://bucket/lake"),
        ("abfss://container@account.dfs.core.windows.net/lake", "abfss://container@account.dfs.core.windows.net/lake"),
    ],
)
def test_a_lake_is_a_directory_or_a_uri(place: str, uri: str) -> None:
    assert str(Storage.at(place)) == uri


@pytest.mark.parametrize("place", ["http://host/lake", "hdfs://host/lake", "ftp:/host"])
def test_another_kind_of_uri_is_refused(place: str) -> None:
    with pytest.raises(
        BadLake, match="A lake is a directory, or a URI that begins with s3://, gs://, abfss:// or file://"
    ):
        Storage.at(place)


@pytest.mark.parametrize(
    ("place", "example"),
    [
        ("s3:///lake", "s3://bucket/path"),
        ("gs:///lake", "gs://bucket/path"),
        ("abfss:///lake", "abfss://container@account.dfs.core.windows.net/path"),
        ("abfss://@account.dfs.core.windows.net/lake", "abfss://container@account.dfs.core.windows.net/path"),
        ("abfss://container@/lake", "abfss://container@account.dfs.core.windows.net/path"),
    ],
)
def test_a_uri_without_a_bucket_is_refused(place: str, example: str) -> None:
    missing = "account" if place.startswith("abfss://container") else "bucket"
    with pytest.raises(BadLake, match=f"^{place} names no {missing}: a lake's URI looks like {example}.$"):
        Storage.at(place)


@pytest.mark.parametrize(
    ("place", "refusal"),
    [
        ("s3://bucket/la#ke", "has a \\?, a # or an empty directory"),  # every table would be in bucket/la
        ("s3://bucket/la?ke", "has a \\?, a # or an empty directory"),
        ("s3://bucket/lake?", "has a \\?, a # or an empty directory"),
        ("s3://bucket//lake", "has a \\?, a # or an empty directory"),
        ("s3://name:secret@bucket/lake", "^A lake's URI has no credentials, because it is printed"),
        ("s3://name:sec/ret@bucket/secret", "^A lake's URI has no credentials, because it is printed"),
        ("abfss://history:secret@account.dfs.core.windows.net/lake", "^A lake's URI has no credentials"),
        ("abfss://history@secret@account.dfs.core.windows.net/lake", "^A lake's URI has no credentials"),
        ("abfss://history@account.dfs.core.windows.net/lake?sv=2022-11-02&sig=secret", "has a \\?"),
        ("https://account.blob.core.windows.net/history/lake?sig=secret", "A lake is a directory, or a URI"),
        ("http://name:sec?ret@host/lake", "A lake is a directory, or a URI"),
        ("s3://[::1/lake", "and no port: give them as storage options"),
        ("/srv/\udcff", "is in UTF-8, and this one is not"),  # as Python reads another encoding
        ("file://srv/lake", "names another machine"),
        ("/srv/a%20lake", "has no % before two digits"),  # the log would be in "a lake"
        ("file:///srv/a%2520lake", "has no % before two digits"),
        ("/srv/a\\b", "has no backslash, which deltalake takes for a /"),  # the log would be in a/b
        ("file:///srv/a%5Cb", "has no backslash, which deltalake takes for a /"),
        ("/srv/a\nb", r"^'/srv/a\\nb' has a control character"),
        ("file:///srv/a%0Ab", r"has a control character"),
        ("s3://bucket/a\tb", r"^'s3://bucket/a\\tb' has a control character"),
        ("abfss://@account.dfs.core.windows.net/lake?sig=secret", "names no bucket"),
        ("abfss://history@account.dfs.core.windows.net/la\nke?sig=secret", "has a control character"),
        ("/srv/a\x7f", "has a control character"),
        ("", "A lake is a directory, or a URI"),
    ],
)
def test_a_place_that_the_log_and_the_files_understand_differently_is_refused(place: str, refusal: str) -> None:
    with pytest.raises(BadLake, match=refusal) as refused:
        Storage.at(place)
    assert "ret" not in str(refused.value)


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeUnavailable, match=r"cannot be read or written: .*File name too long"):
        Lake(tmp_path / ("a" * 300))


@pytest.mark.parametrize("name", ["a b", "a%b", "a#b", "a?b", "日本", "[a]*"])
def test_a_directory_may_have_any_other_name(tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path / name)
    lake.record_missed({1: 2})
    assert lake.missed() == {1: 2}
    assert [path.name for path in tmp_path.iterdir()] == [name]


@WITHOUT_SPARK
def test_options_come_from_the_environment(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_store.options.items():
        monkeypatch.setenv(name, value)
    lake = Lake(object_store.lake().root.uri)
    lake.record_missed({1: 2})
    assert lake.missed() == {1: 2}


def test_an_option_replaces_the_variable_of_the_same_meaning(
    s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_MAX_RETRIES", "0")
    others = {name: value for name, value in s3_store.options.items() if name != "AWS_ENDPOINT_URL"}
    for name in ("AWS_ENDPOINT_URL", "aws_endpoint_url", "endpoint_url", "endpoint", "AWS_ENDPOINT"):
        lake = Lake(f"s3://history/{name}", others | {name: s3_store.url})
        lake.record_missed({1: 2})
        assert lake.missed() == {1: 2}


@pytest.mark.parametrize(
    ("scheme", "variable", "options"),
    [
        ("gs", "GOOGLE_SERVICE_ACCOUNT", ("google_service_account_path", "service_account")),
        ("abfss", "AZURE_STORAGE_ACCOUNT_KEY", ("access_key", "azure_storage_access_key", "MASTER_KEY", "account_key")),
        ("abfss", "AZURE_STORAGE_SAS_TOKEN", ("sas_key", "AZURE_STORAGE_SAS_KEY")),
        ("abfss", "AZURE_TENANT_ID", ("authority_id", "azure_storage_tenant_id")),
        ("abfss", "AZURE_STORAGE_TOKEN", ("bearer_token", "token")),
    ],
)
def test_options_of_one_meaning_are_given_once(
    scheme: str, variable: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "from the environment")
    for name in options:
        assert dict(Storage.at(f"{scheme}://history/lake", {name: "given"}).options) == {variable: "given"}


def test_storage_options_of_a_directory_are_refused() -> None:
    with pytest.raises(BadOption, match="s3:bucket is a directory, and storage options are for object stores"):
        Storage.at("s3:bucket", {"AWS_REGION": "us-east-1"})


@WITHOUT_SPARK
def test_a_wrong_storage_option_is_refused(object_store: ObjectStore) -> None:
    uri = object_store.uri("lake")
    with pytest.raises(BadOption, match=f"The storage options of {uri} are wrong: .*max_retries"):
        Lake(uri, {**object_store.options, "max_retries": "many"})


def test_storage_options_are_pairs() -> None:
    assert parse_options(["A=b=c", "D="]) == {"A": "b=c", "D": ""}
    for wrong in ("secret", "=secret"):
        with pytest.raises(BadOption, match="A storage option is KEY=VALUE") as refused:
            parse_options([wrong])
        assert "secret" not in str(refused.value)


def test_credentials_are_not_printed(s3_store: ObjectStore) -> None:
    silent = s3_store.behind(f"http://user:sec@ret@127.0.0.1:{free_port()}")
    with pytest.raises(LakeUnavailable, match=r"GET http://127\.0\.0\.1:") as refused:
        Lake("s3://history/lake", {**silent.options, "max_retries": "0"})
    assert "ret" not in str(refused.value)
    assert "secret" not in repr(Storage.at("s3://bucket/lake", {"AWS_SECRET_ACCESS_KEY": "secret"}))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0LW9mLWFub3RoZXI=", "403 Forbidden .*AuthorizationFailure"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "a secret that is no key", "Invalid Access Key"),
        ("AZURE_STORAGE_SAS_TOKEN", "?sv=2022-11-02&sr=c&sig=secret", "403 Forbidden .*AuthorizationFailure"),
    ],
)
def test_wrong_credentials_of_azure_are_refused_and_not_printed(
    azure_store: AzureStore, option: str, value: str, reason: str
) -> None:
    with pytest.raises(LakeUnavailable, match=f"cannot be read or written: .*{reason}") as refused:
        Lake(azure_store.uri("lake"), {**azure_store.address, option: value})
    assert value not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.nightly
def test_a_shared_access_signature_of_azure_suffices(azure_store: AzureStore) -> None:
    for token in (azure_store.signature(), f"?{azure_store.signature()}"):
        lake = Lake(azure_store.lake().root.uri, {**azure_store.address, "AZURE_STORAGE_SAS_TOKEN": token})
        lake.record_missed({1: 2})
        assert lake.missed() == {1: 2}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("{secret", "Unable to decode service account file"),
        ('{"private_key": "secret"}', "missing field"),
        ('{"client_email": "a@b", "private_key_id": "1", "private_key": "secret"}', "Error reading pem file"),
    ],
)
def test_a_wrong_key_of_google_is_refused_and_not_printed(key: str, reason: str) -> None:
    with pytest.raises(LakeUnavailable, match=f"gs://history/lake cannot be read or written: .*{reason}") as refused:
        Lake("gs://history/lake", {"GOOGLE_SERVICE_ACCOUNT_KEY": key})
    assert "secret" not in str(refused.value)
