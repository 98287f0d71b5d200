"""The paths of a checkout."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
SDK_VENV = ROOT / ".venv-sdk"
"""The generators of SDKs and their dependencies, whose versions may differ from those of the server."""
BROKERS_VENV = ROOT / ".venv-brokers"
"""The clients of other brokers, which samples of the documentation use."""
REQUIREMENTS = ROOT / "requirements"
PIPELINE, PIPELINE_TESTS = "pipeline/pyproject.toml", "tests/pipeline"
CLIENT, GENERATE = "client/pyproject.toml", "client/generate.py"
REQUEST_OPTIONS = "developing.request_options"
"""The module that writes app/cli/request_options.py."""
REFERENCE = "developing.reference"
"""The module that writes docs/reference."""
OPENAPI = ROOT / "openapi/openapi.json"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "VIRTUAL_ENV": str(VENV),
    "UV_PYTHON_DOWNLOADS": "never",
    "NO_MKDOCS_2_WARNING": "1",
    "REDOCLY_TELEMETRY": "off",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
}
"""The environment of every command. Bytecode is written, because tests start hundreds of processes."""
