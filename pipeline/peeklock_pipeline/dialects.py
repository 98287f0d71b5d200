"""The engines that SQL views are written for."""

from enum import StrEnum


class Dialect(StrEnum):
    """An engine that reads Delta tables."""

    SPARK = "spark"
    DUCKDB = "duckdb"
