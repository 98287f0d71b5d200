"""Installs what this machine needs besides Python: database servers, Java, a browser, Debian packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from developing.paths import PYTHON
from developing.processes import Refusal, call, output, say

SERVERS = {"postgresql": "postgresql", "mariadb": "mariadb-server", "redis": "redis-server"}  # and their packages
BROWSER = "chromium"
PROXIES = {"nginx": "nginx", "haproxy": "haproxy", "openssl": "openssl"}
"""The programs of the tests behind proxies, and their packages. The last one makes a certificate."""
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The broker of a sample of the documentation. The program on the path serves only the machine's own directory."""
JAVA, JAVA_PACKAGE = 17, "openjdk-17-jre-headless"
JAVA_ANNOTATIONS = Path("/usr/share/java/geronimo-annotation-1.3-spec.jar")
"""The annotation `Generated`, which the SDK for Java uses."""
GO_LIBRARIES = Path("/usr/share/gocode")
"""The libraries for Go of Debian."""
AWS_FOR_GO = GO_LIBRARIES / "src/github.com/aws/aws-sdk-go-v2"
"""An SDK of AWS that speaks the query protocol."""


def install_servers(without: list[str]) -> None:
    """Install the servers that are not installed, not running, and not named in the environment."""
    missing = output(PYTHON, "-m", "tests.databases").decode().split()
    packages = [SERVERS[kind] for kind in missing if kind not in without]
    if packages:
        apt_install(*packages)


def install_java() -> None:
    """Install the Java runtime that Spark needs, if Java is missing or older."""
    if java_version() < JAVA:
        apt_install(JAVA_PACKAGE)


def install_browser() -> None:
    """Install the browser that the tests of the console drive, if it is missing."""
    if shutil.which(BROWSER) is None:
        apt_install(BROWSER)


def install_proxies() -> None:
    """Install the proxies before which tests put a server, if they are missing."""
    programs = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    packages = [package for program, package in PROXIES.items() if shutil.which(program, path=programs) is None]
    if packages:
        apt_install(*packages)


def install_rabbitmq() -> None:
    """Install the broker RabbitMQ, if it is missing."""
    if not RABBITMQ.exists():
        apt_install("rabbitmq-server")


def install_compilers() -> None:
    """Install what compiles the SDKs for Java and Go, and the SDK of AWS for Go. Debian has no compiler for C#."""
    programs = {"javac": "default-jdk-headless", "go": "golang-go"}
    packages = [package for program, package in programs.items() if shutil.which(program) is None]
    if not JAVA_ANNOTATIONS.exists():
        packages.append("libgeronimo-annotation-1.3-spec-java")
    if not AWS_FOR_GO.exists():
        packages.append("golang-github-aws-aws-sdk-go-v2-dev")
    if packages:
        apt_install(*packages)


def java_version() -> int:
    """Return the feature release of the Java on the path; 0 without one."""
    if shutil.which("java") is None:
        return 0
    version = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', version)
    return int(found[1]) if found else 0


def apt_install(*packages: str) -> None:
    """Install Debian packages as root or through sudo. If neither works, refuse and name the packages."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Refusal(f"apt-get does not exist here: please install {names} with this system's package manager")
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise Refusal(f"this needs root, and sudo does not exist: apt-get install {names}")
    say(f"installing {names}")
    root = () if os.geteuid() == 0 else ("sudo",)
    apt = (*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0")
    call(*apt, "update")
    call(*apt, "install", "--yes", "--no-install-recommends", *packages)
