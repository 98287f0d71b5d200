"""The options that every job on a lake with Spark has: its lake, where Spark runs, and how the result is printed."""

import json
from dataclasses import asdict, dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from peeklock_pipeline.run_metrics import measure_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from peeklock_pipeline.lake import Lake

LakePlace = Annotated[str, typer.Option("--lake", help="The lake: a directory, or a URI such as s3://bucket/lake.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option of the lake's object store, such as AWS_REGION=eu-west-1; can be repeated.",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        envvar="PEEKLOCK_PIPELINE_MASTER", help="Where Spark runs: local[*], spark://host:port, yarn, k8s://..."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of sentences.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as a command gets it: the values of these options, of which each field is one."""

    lake: LakePlace
    storage_option: StorageOptions = None
    master: Master = "local[*]"
    as_json: AsJson = False

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return the options as parameters of a command, the lake first."""
        return [*signature(cls).parameters.values()]

    def open_lake(self) -> "Lake":
        """Return the lake. Refuses as `Lake` does."""
        return open_lake(self.lake, self.storage_option)

    def open_session(self) -> "SparkSession":
        """Start Spark, which takes seconds."""
        from peeklock_pipeline.session import open_session

        return open_session(self.master)

    def print_result(self, result: Any, sentence: str) -> None:
        """Print the result, and add its numbers to the metrics of the run."""
        print_result(result, self.as_json, sentence)


def open_lake(place: str, options: list[str] | None) -> "Lake":
    """Return the lake of a command. Refuses as `Lake` does."""
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.storage import parse_options

    return Lake(place, parse_options(options))


def print_result(result: Any, as_json: bool, sentence: str) -> None:
    """Print the result of a job, and add its numbers to the metrics of the run."""
    measure_result(result)
    if as_json:
        typer.echo(json.dumps(asdict(result), default=str))
    else:
        out.print(sentence, markup=False, soft_wrap=True)
