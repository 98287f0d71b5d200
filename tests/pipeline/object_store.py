"""Buckets of servers that answer as the object stores of Amazon, Microsoft and Google do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import ClassVar, Self
from urllib.parse import urlencode
from uuid import uuid4

import httpx
from peeklock_pipeline.lake import Lake

BUCKET = "history"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, and its published key."""


@dataclass(frozen=True)
class ObjectStore:
    """A bucket of a server that answers as Amazon S3 does, and the options with which it is reached."""

    url: str

    place: ClassVar[str] = "s3://{bucket}"
    missing: ClassVar[str] = "NoSuchBucket"
    """What the server says of a bucket that it does not have."""
    secret: ClassVar[str] = "test"

    @classmethod
    def with_bucket(cls, url: str) -> Self:
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
        return Lake(self.uri(f"{uuid4().hex}/lake"), self.options)

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        """Return the URI of a path in a bucket."""
        return f"{self.place.format(bucket=bucket)}/{path}"

    def behind(self, url: str) -> Self:
        """The same bucket at another address, such as that of a proxy."""
        return replace(self, url=url)


class AzureStore(ObjectStore):
    """A container of a server that answers as Azure Blob Storage does."""

    place = f"abfss://{{bucket}}@{ACCOUNT}.dfs.core.windows.net"
    missing = "ContainerNotFound"
    secret = ACCOUNT_KEY

    @classmethod
    def with_bucket(cls, url: str) -> Self:
        """Make the container, in a request that is signed with the account's key."""
        path = f"/{ACCOUNT}/{BUCKET}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
        lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
        text = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
        headers["authorization"] = f"SharedKey {ACCOUNT}:{signed(text)}"
        httpx.put(f"{url}{path}?restype=container", headers=headers, timeout=60).raise_for_status()
        return cls(url)

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options of a lake."""
        return {**self.address, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}

    @property
    def address(self) -> Mapping[str, str]:
        """The same without credentials."""
        return {"AZURE_STORAGE_ENDPOINT": f"{self.url}/{ACCOUNT}", "AZURE_ALLOW_HTTP": "true"}

    @staticmethod
    def signature() -> str:
        """Return a shared access signature, which allows to list, read, write and delete blobs."""
        given = {"sp": "rwdl", "ss": "b", "srt": "sco", "st": "", "se": "2999-01-01T00:00:00Z", "sip": ""}
        given |= {"spr": "https,http", "sv": "2022-11-02"}
        text = "\n".join([ACCOUNT, *given.values(), "", ""])
        return urlencode(given | {"sig": signed(text)})


def signed(text: str) -> str:
    """Return a text's signature by the key of Azurite's account."""
    return base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()


class GoogleStore(ObjectStore):
    """A bucket that is reached as Google Cloud Storage is. The server is one of Amazon S3, behind `losing_proxy.py`."""

    place = "gs://{bucket}"
    secret = "private_key"

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options of a lake."""
        account = {"gcs_base_url": self.url, "disable_oauth": True}
        account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}
