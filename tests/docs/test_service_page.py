"""app/README.md fits on one page, and names the layers and the files that the service has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

APP = Path(__file__).resolve().parents[2] / "app"
PAGE = (APP / "README.md").read_text("utf-8")
FILE = re.compile(r"`([\w.<][\w./<>]*(?:/|\.py|\.md))(?:`| )")
"""A file or folder, from app/; `<engine>` stands for the folder of each engine."""


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 100


def test_each_file_that_the_page_names_exists() -> None:
    named = FILE.findall(PAGE)
    assert len(named) > 50
    assert [name for name in named if not list(APP.glob(name.replace("<engine>", "*").removesuffix("/")))] == []


def test_the_page_has_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((APP.parent / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [checked] = [contract["layers"] for contract in contracts if contract.get("containers") == ["app"]]
    drawn = re.findall(r"^    (\w+(?: [│·] \w+)*) {2,}\S", PAGE.partition("## ")[0], re.MULTILINE)
    assert [re.split(" [│·] ", layer) for layer in drawn] == [layer.split(" | ") for layer in checked]
