"""The cause of an error, from the report of a failure that Spark, Java or Python wrote, in one line without credentials."""

import re

PYTHON_TRACEBACK = "Traceback (most recent call last):"
JAVA_CAUSE = "Caused by: "

MESSAGE = re.compile("(?:Exception|Error): .")
"""The end of the name of Java's exception, and the start of its message, which some do not have."""

MAX_CHARACTERS = 400
"""The length of a cause. A longer one ends with dots."""

CREDENTIALS = re.compile(
    r"(://)[^/\s]*(?=@)|((?:password|passwd|secret|token|key|credential|signature|sig)(?:=|[\"']:\s*))[^\s&,;]+",
    re.IGNORECASE,
)
"""The user and password of a URL, and the value of an option that may be secret."""


def cause_of(report: str) -> str:
    """Return the cause that Spark's report of a failure ends with, in one line without credentials."""
    line = CREDENTIALS.sub(r"\1\2...", " ".join(_cause(report).split()))
    return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 3]}..."


def _cause(report: str) -> str:
    """Return the exception of the last Python traceback; else that of Java, and its last cause with a message."""
    before, python, raised = report.rpartition(PYTHON_TRACEBACK)
    lines = [line for line in (raised if python else report).splitlines() if line.strip()]
    if python:
        return next((line for line in lines if not line[0].isspace()), before)
    first = next((line for line in lines if MESSAGE.search(line)), lines[0] if lines else "").removeprefix(": ")
    causes = [line for line in lines if line.startswith(JAVA_CAUSE) and MESSAGE.search(line)]
    return f"{first}, caused by {causes[-1].removeprefix(JAVA_CAUSE)}" if causes else first
