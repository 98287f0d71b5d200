"""The start page: what this server is, and where to go on."""

import app
from app.http.operation import operation
from app.http.request import Request
from app.http.response import Response
from app.wire.index import IndexLinks, ServerIndex

GUIDES = (
    "docs/README.md",
    "docs/compare.md",
    "docs/http.md",
    "docs/command-line.md",
    "docs/console.md",
    "docs/sdks.md",
    "docs/sqs.md",
    "docs/testing.md",
    "docs/protocol.md",
    "docs/deploy.md",
    "docs/monitoring.md",
    "docs/performance.md",
    "docs/postgresql.md",
    "docs/pipeline.md",
    "docs/behaviours.md",
)


@operation("GET", "/", right=None, tag="index", responses={200: ServerIndex})
async def read_index(request: Request[None]) -> Response:
    """Get the name and version of the server, its paths that need no API key, and the names of the guides."""
    root = request.root_path
    links = IndexLinks(
        docs=f"{root}/docs",
        document=f"{root}/openapi.json",
        liveness=f"{root}/livez",
        readiness=f"{root}/readyz",
        metrics=f"{root}/metrics",
    )
    return Response(ServerIndex(version=app.__version__, links=links, guides=list(GUIDES)))
