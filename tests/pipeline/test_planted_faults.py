"""Every fault that is planted into the lake, the archive or a queue is found and named, or stands here with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from peeklock_pipeline.jobs.audit import FROM_SCRATCH, WHAT_IS_NEW, AuditOptions, AuditResult
from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.lake import Lake
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.pipeline.archive import Archive
from tests.pipeline.planted_faults import (
    LAKE,
    TABLES,
    AuditedSystem,
    PlantedFault,
    damaged_rows,
    exported,
    faults_of,
    full_row,
    waiting,
)
from tests.walks import for_each

UNCOVERED = "it may change until the message ends and its batch is sealed, and no digest covers it until then"
UNEXPORTED = "They are not exported: one belongs to the queue, the other tells the server when to remove the row."
KEYED = "The database cannot hold two rows with one sequence number, because it is the primary key."
UNREAD = "On SQLite the audit takes the length from the body itself."
UNPROVEN = "It is in no digest, and names a message only where the digest of a batch differs."
SAME_SUM = "the content and the count of accepted messages stay the same; a digest covers the number once it is sealed"

CONTENT = {"message_id", "group_id", "headers", "body_kind", "body", "content_digest"}
"""The columns that are covered from the moment a message is accepted."""

CANNOT_BE_SEEN = {
    **{f"sealed {kind} {name}": UNEXPORTED for kind in ("change", "swap") for name in ("queue_id", "remove_at")},
    **{f"sealed {kind} shared_body_bytes": UNREAD for kind in ("change", "swap")},
    **{f"lake {kind} row_checksum": UNPROVEN for kind in ("change", "swap")},
    **{f"{place} duplicate": KEYED for place in ("sealed", "unsealed", "live")},
    **{
        f"unsealed {kind} {name}": UNCOVERED
        for kind in ("change", "swap")
        for name in TABLES["archive"]
        if name not in CONTENT | {"sequence_number", "queue", "export_batch"}
    },
    **{
        f"live {kind} {name}": UNCOVERED
        for kind in ("change", "swap")
        for name in TABLES["message"]
        if name not in CONTENT | {"sequence_number", "queue_id"}
    },
    **{f"{place} {kind} sequence_number": SAME_SUM for place in ("unsealed", "live") for kind in ("change", "swap")},
    "unsealed swap queue": SAME_SUM,
    "live swap queue_id": SAME_SUM,
}
"""Faults that an audit does not find, and why. docs/pipeline.md says it as well."""


def detectable(place: str, faults: list[str]) -> list[str]:
    """These faults without those that cannot be seen there."""
    return [fault for fault in faults if f"{place} {fault}" not in CANNOT_BE_SEEN]


IN_LAKE, SEALED_AT_KEY = detectable("lake", faults_of(LAKE)), detectable("sealed", faults_of(TABLES["archive"]))
ALIKE = [f"swap {name}" for name in LAKE if name in TABLES["archive"] and name != "export_batch"]
UNSEALED, LIVE = detectable("unsealed", faults_of(TABLES["archive"])), detectable("live", faults_of(TABLES["message"]))

BIG = ("first", "middle", "last")
SMALL = range(2, 2 + len(IN_LAKE))
"""Batches of two rows, one for each fault in the lake; the archive has removed them. A big one is between and around them."""

NUMBERS = {"first": 1, "middle": SMALL.stop, "last": SMALL.stop + 1}
LATE = range(NUMBERS["last"] + 1, NUMBERS["last"] + 1 + len(SEALED_AT_KEY))
"""Sealed batches that no export has brought yet."""


def rows_from(start: int, faults: list[str]) -> range:
    """The first number of the two rows of each fault."""
    return range(start, start + 2 * len(faults), 2)


def own(place: str, start: int, faults: list[str]) -> list[PlantedFault]:
    """Faults whose messages are named."""
    pairs = zip(faults, rows_from(start, faults), strict=True)
    return [PlantedFault(place, fault, first) for fault, first in pairs]


LAKE_PLANTS = [
    *(plant for name in BIG for plant in own(f"lake, {name} batch", NUMBERS[name] * 1000, IN_LAKE)),
    *(
        PlantedFault("lake, trimmed batch", fault, number * 1000, batch=number if fault == "delete" else None)
        for number, fault in zip(SMALL, IN_LAKE, strict=True)
    ),
]
SEALED_PLANTS = [plant for name in BIG for plant in own(f"archive, {name} batch", NUMBERS[name] * 1000, SEALED_AT_KEY)]
LATE_PLANTS = [
    PlantedFault("archive, not exported", fault, number * 1000, batch=number)
    for number, fault in zip(LATE, SEALED_AT_KEY, strict=True)
]
UNSEALED_PLANTS = [
    PlantedFault("archive, not sealed", fault, first, queue=f"unsealed-{first}")
    for fault, first in zip(UNSEALED, rows_from(300_000, UNSEALED), strict=True)
]
LIVE_PLANTS = [
    PlantedFault("queue", fault, first, queue=f"live-{first}")
    for fault, first in zip(LIVE, rows_from(400_000, LIVE), strict=True)
]
ALIKE_PLANTS = own("lake and archive, middle batch", NUMBERS["middle"] * 1000, ALIKE)
WHOLE_PLANTS = [PlantedFault("lake, whole batch", f"delete {name}", 0, batch=NUMBERS[name]) for name in BIG]
DATABASE_PLANTS = [*SEALED_PLANTS, *LATE_PLANTS, *UNSEALED_PLANTS, *LIVE_PLANTS]


@pytest.fixture(scope="module")
def intact_system(spark: SparkSession, sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> AuditedSystem:
    """A database and its lake as they should be, with rows for every fault. The first batch is audited already."""
    place = tmp_path_factory.mktemp("planted")
    archive, lake, log = Archive.empty(sqlite_url), Lake(place / "lake"), place / "sent.jsonl"
    most = 2 * max(len(IN_LAKE), len(SEALED_AT_KEY))
    batches = {
        number: [full_row(number * 1000 + n) for n in range(2 if number in SMALL else most)]
        for number in (NUMBERS["first"], *SMALL, NUMBERS["middle"], NUMBERS["last"])
    }
    archive.seal_all_with_events({NUMBERS["first"]: batches.pop(NUMBERS["first"])})
    exported(spark, archive, lake)
    assert AuditedSystem(archive, lake, log).run_audit(spark, None).notes.recorded
    archive.seal_all_with_events(batches)
    exported(spark, archive, lake)
    archive.remove(SMALL, "trimmed")
    archive.seal_all_with_events({number: [full_row(number * 1000 + n) for n in range(2)] for number in LATE})
    archive.archive_rows(
        [full_row(number) | {"queue": plant.queue} for plant in UNSEALED_PLANTS for number in plant.pair]
    )
    sharing = [n for plant in (*SEALED_PLANTS, *LATE_PLANTS) if "shared_body_id" in plant.fault for n in plant.pair]
    archive.share_bodies(f"sequence_number IN ({', '.join(map(str, sharing))})")
    queues = {(number * 1000, str(plant.queue)): plant.pair for number, plant in enumerate(LIVE_PLANTS, 1)}
    queues[1, "orders"] = (900_001,)
    archive.add_to_queues({queue: [waiting(number) for number in numbers] for queue, numbers in queues.items()})
    sent = [number * 1000 + n for number in NUMBERS.values() for n in range(most)]
    sent += [number * 1000 + n for number in (*SMALL, *LATE) for n in range(2)]
    sent += [number for plant in (*UNSEALED_PLANTS, *LIVE_PLANTS) for number in plant.pair]
    log.write_text("".join(json.dumps(f"id-{number}") + "\n" for number in sent))
    return AuditedSystem(archive, lake, log)


RunScene = Callable[..., AuditResult]


@pytest.fixture(scope="module")
def run_scene(
    spark: SparkSession, intact_system: AuditedSystem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunScene]:
    """What an audit finds in a scene, with the senders' log or without; each is audited once, also where it fails."""
    root = tmp_path_factory.mktemp("scenes")

    @cache
    def scene(name: str) -> AuditedSystem:
        system = intact_system.copied(root / name)
        if name == "lake":
            system.damage_lake(damaged_rows(LAKE_PLANTS))
        if name == "alike":
            system.damage_lake(damaged_rows(ALIKE_PLANTS))
            system.damage_table("archive", ALIKE_PLANTS)
        if name == "whole":
            gone = set(NUMBERS.values())
            system.damage_lake(lambda rows: [row for row in rows if row["export_batch"] not in gone])
            system.archive.remove(gone, "trimmed")
        if name == "database":
            system.damage_table("archive", [*SEALED_PLANTS, *LATE_PLANTS, *UNSEALED_PLANTS])
            system.damage_table("message", LIVE_PLANTS)
        return system

    @cache
    def audited(name: str, with_log: bool, options: AuditOptions) -> Future[AuditResult]:
        return thread.submit(scene(name).run_audit, spark, intact_system.log if with_log else None, options)

    with ThreadPoolExecutor(1) as thread:
        yield lambda name, with_log, options=FROM_SCRATCH: audited(name, with_log, options).result()


SCENES = {
    "lake": LAKE_PLANTS,
    "alike": ALIKE_PLANTS,
    "whole": WHOLE_PLANTS,
    "database": DATABASE_PLANTS,
}
PLANTED = [(scene, plant) for scene, plants in SCENES.items() for plant in plants]


def name_of(case: tuple[str, PlantedFault]) -> str:
    """The place and the kind of a planted fault."""
    return f"{case[1].place}: {case[1].fault}"


@pytest.mark.parametrize("with_log", [True, False], ids=["with a log", "without a log"])
def test_where_nothing_is_planted_nothing_is_found(run_scene: RunScene, with_log: bool) -> None:
    done = run_scene("sound", with_log)
    assert (done.findings, done.unnamed) == ([], 0)
    assert all(line.missing == 0 for line in done.ledger)


@pytest.mark.parametrize(
    "with_log",
    [pytest.param(True, id="with a log"), pytest.param(False, id="without a log", marks=pytest.mark.nightly)],
)
@for_each(("scene", "plant"), PLANTED, name_of)
def test_a_planted_fault_is_named(run_scene: RunScene, scene: str, plant: PlantedFault, with_log: bool) -> None:
    done = run_scene(scene, with_log)
    assert done.unnamed == 0
    assert plant.is_named(done.findings)


def is_new(scene: str, plant: PlantedFault) -> bool:
    """Whether a fault is not in the first batch, which is audited already."""
    return "first" not in plant.place and plant.batch != NUMBERS["first"]


@for_each(("scene", "plant"), [case for case in PLANTED if case[0] != "whole" and is_new(*case)], name_of)
def test_a_planted_fault_in_what_is_new_is_named_by_a_later_audit(
    run_scene: RunScene, scene: str, plant: PlantedFault
) -> None:
    done = run_scene(scene, False, WHAT_IS_NEW)
    assert (done.unnamed, done.notes.audited, done.notes.recorded) == (0, NUMBERS["first"], False)
    assert plant.is_named(done.findings)


LOST = ("lake, trimmed batch", "archive, not exported", "archive, not sealed", "queue")
"""Where a message that is deleted is in no other place."""


@for_each(("scene", "plant"), [case for case in PLANTED if case[1].fault == "delete"], name_of)
def test_a_deleted_message_that_the_senders_log_has_is_named_by_its_id(
    run_scene: RunScene, scene: str, plant: PlantedFault
) -> None:
    lost = Finding("was sent, but is missing", message_id=f"id-{plant.first}")
    assert (lost in run_scene(scene, True).findings) == (plant.place in LOST)


def test_what_cannot_be_seen_has_its_reason_in_the_guide() -> None:
    guide = " ".join((Path(__file__).parents[2] / "docs/pipeline.md").read_text(encoding="utf-8").split())
    for reason in (UNCOVERED, UNEXPORTED, KEYED, UNPROVEN, SAME_SUM):
        assert reason in guide


def test_what_is_said_not_to_be_seen_is_not_seen(
    run_scene: RunScene, intact_system: AuditedSystem, spark: SparkSession, tmp_path: Path
) -> None:
    system = intact_system.copied(tmp_path / "unseen")
    for name in ("state", "priority", "properties", "available_at", "delivery_count"):
        execute(system.archive.url, f"UPDATE message SET {name} = 3 WHERE sequence_number = 900001")
    assert system.run_audit(spark, None).findings == []
