"""The options of the data source, read once. Invalid options are refused with a sentence."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from peeklock_pipeline.database import Database
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.sending import Destination
from peeklock_pipeline.source.lake_archive import LakeArchive
from peeklock_pipeline.source.server_archive import ServerArchive
from peeklock_pipeline.table_specs import ARCHIVE, HISTORY, MESSAGE_COLUMNS

STORAGE = "storage."
"""The prefix of an option of the lake's object store, such as `storage.AWS_REGION`."""

UNSELECTED_BY_DEFAULT = ("body", HISTORY)
"""Columns that are read only by name, because most queries do not need them and they are most of the bytes."""


MAX_DIGITS = 18
"""Digits of the number of a batch, which the database and the lake store in 64 bits."""

OLD_NAMES = {"database_url": "databaseUrl", "from_batch": "fromBatch", "api_key": "apiKey"}
"""The names of options before they were written as Spark writes its own, and their names since."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`databaseUrl` or `lake`; `columns` by commas, or `*`; `fromBatch`; for streams `maxBatchesPerTrigger`, `failOnDataLoss`.

    `fromBatch` is the number of the first sealed batch to read; without it, the first that is left.
    """

    origin: ServerArchive | LakeArchive
    columns: tuple[str, ...]
    from_batch: int | None
    max_batches: int | None
    refuses_loss: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Parse the options. Refuses with `BadOption`, `BadDatabaseUrl` and `BadLake`."""
        given = parsed(options)
        return cls(
            origin=_origin(given),
            columns=_columns(given.get("columns")),
            from_batch=_count(given, "fromBatch"),
            max_batches=_count(given, "maxBatchesPerTrigger"),
            refuses_loss=_choice(given, "failOnDataLoss"),
        )

    def schema(self) -> StructType:
        """Return the columns as a Spark schema."""
        found = from_arrow_schema(ARCHIVE.schema)
        return StructType([found[name] for name in self.columns])


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`url` of the server, `queue` to send to, and an `apiKey` with the rights to send to the queue and browse it."""

    destination: Destination

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Parse the options. Refuses with `BadOption`."""
        given = parsed(options)
        return cls(Destination.from_url(_needed(given, "url"), _needed(given, "queue"), given.get("apikey")))


def parsed(given: Mapping[str, str]) -> dict[str, str]:
    """Return options under their present names in lower case, because Spark ignores the case of options.

    An old name is accepted with a warning. An old name beside the present one is refused with `BadOption`.
    """
    options = {name.lower(): value for name, value in given.items()}
    for old, name in OLD_NAMES.items():
        if old not in options:
            continue
        if name.lower() in options:
            raise BadOption(f"The option {old} is the old name of {name}: set {name} alone.")
        warnings.warn(f"The option {old} of the data source peeklock is now {name}.", FutureWarning, stacklevel=2)
        options[name.lower()] = options.pop(old)
    return options


def check_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return these columns if the archive has all of them. Refuses with `BadOption`."""
    unknown_columns = [name for name in columns if name not in MESSAGE_COLUMNS]
    if unknown_columns:
        raise BadOption(f"The archive has no column {', '.join(unknown_columns)}. It has {', '.join(MESSAGE_COLUMNS)}.")
    return columns


def _origin(options: Mapping[str, str]) -> ServerArchive | LakeArchive:
    if lake := options.get("lake"):
        if "databaseurl" in options:
            raise BadOption("The data source peeklock reads a database or a lake: set databaseUrl or lake.")
        storage = {name.removeprefix(STORAGE).upper(): options[name] for name in options if name.startswith(STORAGE)}
        return LakeArchive(Lake(lake, storage))
    return ServerArchive(Database.from_url(_needed(options, "databaseUrl", " or lake")))


def _columns(given: str | None) -> tuple[str, ...]:
    if given is None or not given.strip():
        return tuple(name for name in MESSAGE_COLUMNS if name not in UNSELECTED_BY_DEFAULT)
    if given.strip() == "*":
        return MESSAGE_COLUMNS
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    if "" in names:
        raise BadOption(f"The option columns has names between commas, or is *; {given!r} has an empty name.")
    return check_columns(names)


def _needed(options: Mapping[str, str], name: str, otherwise: str = "") -> str:
    value = options.get(name.lower())
    if not value:
        raise BadOption(f"The data source peeklock needs the option {name}{otherwise}.")
    return value


def _count(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name.lower())
    if given is None:
        return None
    if not given.isdecimal() or len(given) > MAX_DIGITS or int(given) < 1:
        raise BadOption(f"The option {name} is a number from 1, not {given!r}.")
    return int(given)


def _choice(options: Mapping[str, str], name: str) -> bool:
    given = options.get(name.lower(), "true").lower()
    if given not in ("true", "false"):
        raise BadOption(f"The option {name} is true or false, not {given!r}.")
    return given == "true"
