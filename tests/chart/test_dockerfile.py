"""The Dockerfile is sound, and agrees with the chart and the project file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from developing.paths import ENVIRONMENT
from tests.chart.release import REQUIRED, chart, environment, render

TREE = Path(__file__).parents[2]
DOCKERFILE = (TREE / "Dockerfile").read_text()
PIPELINE_DOCKERFILE = (TREE / "pipeline/Dockerfile").read_text()
CLIENT_DOCKERFILE = (TREE / "client/Dockerfile").read_text()
BUILD_STAGE, GUIDE_STAGE, LAST_STAGE = DOCKERFILE.split("\nFROM ")[1:]
PIPELINE_BUILD_STAGE, PIPELINE_LAST_STAGE = PIPELINE_DOCKERFILE.split("\nFROM ")[1:]
CLIENT_BUILD_STAGE, CLIENT_LAST_STAGE = CLIENT_DOCKERFILE.split("\nFROM ")[1:]
STAGES = (BUILD_STAGE, GUIDE_STAGE, PIPELINE_BUILD_STAGE, CLIENT_BUILD_STAGE)
PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text())
CLIENT_PROJECT = tomllib.loads((TREE / "client/pyproject.toml").read_text())["project"]
PIPELINE_PROJECT = tomllib.loads((TREE / "pipeline/pyproject.toml").read_text())["project"]


def found_by_hadolint(dockerfile: str) -> str:
    """Return hadolint's findings for a Dockerfile; empty if it has none."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "-"], input=dockerfile, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def setting(name: str) -> str:
    """Return an environment variable of the last stage."""
    found = re.search(rf"^\s+{name}=(\S+)", LAST_STAGE, re.MULTILINE)
    assert found, f"{name} is not set"
    return found[1]


def sources(stage: str) -> list[str]:
    """Return what a stage copies from the tree."""
    return [name for line in re.findall(r"^COPY (?!--)(.+) \S+$", stage, re.MULTILINE) for name in line.split()]


@pytest.mark.parametrize(
    "dockerfile", [DOCKERFILE, PIPELINE_DOCKERFILE, CLIENT_DOCKERFILE], ids=["server", "pipeline", "client"]
)
def test_hadolint_finds_nothing(dockerfile: str) -> None:
    assert found_by_hadolint(dockerfile) == ""


def test_hadolint_would_find_something() -> None:
    assert "DL3002" in found_by_hadolint(DOCKERFILE.replace("USER 10001:10001", "USER root"))


def test_all_stages_start_from_the_base_that_can_be_chosen() -> None:
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}"] * 3
    assert re.findall(r"^ARG BASE=", DOCKERFILE, re.MULTILINE) == ["ARG BASE="]


def test_the_last_stage_installs_nothing_and_takes_only_what_was_built() -> None:
    copies = re.findall(r"^COPY (.+)$", LAST_STAGE, re.MULTILINE)
    assert copies == [
        "--from=build /opt/peeklock /opt/peeklock",
        "--from=guide /site /opt/peeklock-guide",
    ]
    assert not re.search(r"\b(pip|apt-get|gcc|curl) ", LAST_STAGE)


def test_everything_copied_exists_and_everything_else_stays_out() -> None:
    ignored, *rules = [rule for rule in (TREE / ".dockerignore").read_text().split("\n") if rule[:1] not in ("", "#")]
    assert ignored == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = [source for stage in STAGES for source in sources(stage)]
    assert let_in == {source for source in copied if let_in.isdisjoint(map(str, Path(source).parents))}
    assert [source for source in let_in if not (TREE / source).exists()] == []


def test_the_guide_stage_copies_all_that_its_site_needs(tmp_path: Path) -> None:
    for source in sources(GUIDE_STAGE):
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (TREE / source).is_dir() else shutil.copy)(TREE / source, target)
    program = Path(sys.executable).with_name("mkdocs")
    command = (program, "build", "--strict", "--quiet", "--site-dir", tmp_path / "site")
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site/index.html").exists()
    assert setting("PEEKLOCK_GUIDE_DIR") == "/opt/peeklock-guide"


def test_image_and_chart_agree_on_user_port_and_folder() -> None:
    release = render(REQUIRED)
    security = release.one("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}\n" in LAST_STAGE
    for name in ("PEEKLOCK_HOST", "PEEKLOCK_PORT", "PEEKLOCK_DATA_DIR", "PEEKLOCK_LOG_FORMAT"):
        assert setting(name) == environment(release.server())[name]["value"]
    assert f"EXPOSE {setting('PEEKLOCK_PORT')}\n" in LAST_STAGE
    assert f"VOLUME {setting('PEEKLOCK_DATA_DIR')}\n" in LAST_STAGE
    assert 'ENTRYPOINT ["peeklock"]\nCMD ["serve"]\n' in LAST_STAGE
    assert chart().values["podSecurity"]["fsGroup"] == security["runAsGroup"]


def test_image_and_project_agree_on_version_and_build_tool() -> None:
    assert f"ARG VERSION={PROJECT['project']['version']}\n" in LAST_STAGE
    assert (TREE / "requirements" / "build.in").read_text().split() == PROJECT["build-system"]["requires"]


def test_the_server_is_installed_from_its_wheel_as_the_guide_says() -> None:
    """`tests/client/test_package.py` shows that the wheel alone runs, with its migrations."""
    own = "pip install --no-deps --no-build-isolation ."
    assert re.findall(r"pip install --no-deps.*?(?= \\|$)", BUILD_STAGE, re.MULTILINE) == [own]
    assert f".venv/bin/{own}\n" in (TREE / "docs/deploy.md").read_text()


# ---- the image of the pipeline ---------------------------------------------------------------------------------------


def test_the_pipeline_installs_what_is_pinned_by_hash_and_builds_only_spark() -> None:
    steps = PIPELINE_BUILD_STAGE.replace("\\\n", " ").replace("\n", " && ").split(" && ")
    *pinned, own = [" ".join(step.split("pip install")[1].split()) for step in steps if "pip install" in step]
    assert pinned == [
        "--require-hashes --only-binary=:all: --requirement requirements/build.txt",
        "--require-hashes --only-binary=:all: --no-binary=pyspark --no-build-isolation "
        "--requirement requirements/pipeline.txt",
    ]
    assert own == "--no-deps --no-build-isolation ."
    assert re.findall(r"^(\S+)==", (TREE / "requirements/pipeline.txt").read_text(), re.MULTILINE).count("pyspark") == 1


def test_the_image_of_the_pipeline_and_the_chart_agree_on_user_and_version() -> None:
    assert re.findall(r"^ARG BASE=python:(\d+\.\d+)", PIPELINE_DOCKERFILE, re.MULTILINE) == ["3.11"]
    assert re.findall(r"^FROM (\S+)", PIPELINE_DOCKERFILE, re.MULTILINE) == ["${BASE}"] * 2
    assert "openjdk-17-jre-headless" in PIPELINE_LAST_STAGE
    security = render(REQUIRED).one("Deployment")["spec"]["template"]["spec"]["securityContext"]
    user = f"{security['runAsUser']}:{security['runAsGroup']}"
    assert f"useradd --uid {security['runAsUser']} " in PIPELINE_LAST_STAGE
    assert f"\nUSER {user}\n" in PIPELINE_LAST_STAGE
    assert 'ENTRYPOINT ["peeklock-pipeline"]\n' in PIPELINE_LAST_STAGE
    assert f"ARG VERSION={PIPELINE_PROJECT['version']}\n" in PIPELINE_LAST_STAGE
    assert {"peeklock-pipeline"} == PIPELINE_PROJECT["scripts"].keys()


# ---- the image of the client -----------------------------------------------------------------------------------------


def test_the_client_installs_only_what_is_pinned_by_hash() -> None:
    steps = CLIENT_BUILD_STAGE.replace("\\\n", " ").replace("\n", " && ").split(" && ")
    pinned, own = [" ".join(step.split("pip install")[1].split()) for step in steps if "pip install" in step]
    assert pinned == "--require-hashes --requirement requirements/build.txt --requirement requirements/client.txt"
    assert own == "--no-deps --no-build-isolation ."
    assert "PIP_ONLY_BINARY=:all:" in CLIENT_BUILD_STAGE


def test_the_image_of_the_client_runs_its_command_as_the_user_of_the_chart() -> None:
    assert re.findall(r"^FROM (\S+)", CLIENT_DOCKERFILE, re.MULTILINE) == ["${BASE}"] * 2
    [base] = re.findall(r"^ARG BASE=\S+$", CLIENT_DOCKERFILE, re.MULTILINE)
    assert base in DOCKERFILE
    security = render(REQUIRED).one("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert f"\nUSER {security['runAsUser']}:{security['runAsGroup']}\n" in CLIENT_LAST_STAGE
    assert 'ENTRYPOINT ["peeklock-worker"]\n' in CLIENT_LAST_STAGE
    assert f"ARG VERSION={CLIENT_PROJECT['version']}\n" in CLIENT_LAST_STAGE
    assert {"peeklock-worker"} == CLIENT_PROJECT["scripts"].keys()
