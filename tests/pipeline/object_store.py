"""A bucket of a server that answers as Amazon S3 does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

import httpx
from peeklock_pipeline.lake import Lake

BUCKET = "history"


@dataclass(frozen=True)
class ObjectStore:
    """The bucket, and the options with which it is reached."""

    url: str

    @classmethod
    def with_bucket(cls, url: str) -> ObjectStore:
        """Make the bucket."""
        httpx.put(f"{url}/{BUCKET}", timeout=60).raise_for_status()
        return cls(url)

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options of a lake."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", **keys}

    @property
    def words(self) -> list[str]:
        """The same as options of a command."""
        return [word for name, value in self.options.items() for word in ("--storage-option", f"{name}={value}")]

    def lake(self) -> Lake:
        """A lake in a new directory of the bucket."""
        return Lake(f"s3://{BUCKET}/{uuid4().hex}/lake", self.options)

    def behind(self, url: str) -> ObjectStore:
        """The same bucket at another address, such as that of a proxy."""
        return ObjectStore(url)
