"""The style sheet, scripts and images of the console. They are part of this package, so a page loads nothing from elsewhere."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from app.domain.refusals import NotFound

STATIC = Path(__file__).with_name("static")
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"
"""The path of a file has the digest of all files, so a file never changes."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is and compressed."""

    content: bytes
    compressed: bytes
    media_type: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return the files by their paths. They are read once."""
    files = sorted(path for path in STATIC.rglob("*") if path.suffix in MEDIA_TYPES)
    return {path.relative_to(STATIC).as_posix(): _read(path) for path in files}


@cache
def digest() -> str:
    """Return the digest of all files."""
    combined = hashlib.sha256()
    for name, asset in assets().items():
        combined.update(f"{name} {len(asset.content)} ".encode() + asset.content)
    return combined.hexdigest()[:16]


def asset_url(name: str) -> str:
    """Return the path of a file. Scripts that import each other by relative paths find each other there."""
    if name not in assets():
        raise KeyError(name)
    return f"/console/assets/{digest()}/{name}"


@router.get("/console/assets/{version}/{name:path}")
async def read_asset(request: Request, version: str, name: str) -> Response:
    """Answer a file. Every client may read it."""
    asset = assets().get(name)
    if asset is None or version != digest():
        raise NotFound("The console has no such file.")
    headers = {"cache-control": FOREVER, "x-content-type-options": "nosniff", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(asset.compressed, headers=headers, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, gzip.compress(content, 9, mtime=0), MEDIA_TYPES[path.suffix])
