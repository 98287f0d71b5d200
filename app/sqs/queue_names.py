"""Names of queues in SQS: in URLs, in ARNs, and with a suffix for FIFO queues."""

from string import ascii_letters, digits
from typing import Final
from urllib.parse import urlsplit

from app.domain.queue import is_valid_name
from app.domain.refusals import InvalidRequest, QueueNotFound
from app.sqs.errors import MissingParameter

ACCOUNT: Final = "000000000000"
"""The account in URLs and ARNs. There is one account, so it has no effect."""

FIFO_SUFFIX: Final = ".fifo"
_MAX_NEW_NAME_LENGTH = 80
"""Characters with the suffix, as in SQS. Only CreateQueue has this limit: other actions take longer names too."""
_NEW_NAME_CHARACTERS = frozenset(ascii_letters + digits + "-_")
_ARN_FIELDS = 6


def is_fifo(name: str) -> bool:
    """Return whether this is the name of a FIFO queue."""
    return name.endswith(FIFO_SUFFIX)


def check_new_name(name: str) -> None:
    """Refuse with `InvalidRequest` a name that CreateQueue cannot give to a queue."""
    stem = name.removesuffix(FIFO_SUFFIX)
    if len(name) > _MAX_NEW_NAME_LENGTH or not _NEW_NAME_CHARACTERS.issuperset(stem):
        raise InvalidRequest(
            f"A QueueName has 1 to {_MAX_NEW_NAME_LENGTH} letters, digits, dashes and underscores. That of a FIFO queue "
            f"ends with {FIFO_SUFFIX}."
        )
    if not is_valid_name(name):
        raise InvalidRequest("On this server, a QueueName begins and ends with a letter or a digit.")


def arn_of(name: str, region: str) -> str:
    """Return the ARN of a queue. The region is that of the signature."""
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"


def name_of_arn(arn: str) -> str:
    """Return the name of the queue with this ARN. Its partition, region and account have no effect.

    Refuses with `InvalidRequest` a text that is not the ARN of a queue.
    """
    fields = arn.split(":")
    if len(fields) != _ARN_FIELDS or fields[0] != "arn" or fields[2] != "sqs" or not is_valid_name(fields[-1]):
        raise InvalidRequest(f"The ARN of a queue has the form arn:aws:sqs:REGION:{ACCOUNT}:NAME.")
    return fields[-1]


def queue_url(name: str, base_url: str) -> str:
    """Return the URL of a queue on the server with this URL, which has no slash at its end."""
    return f"{base_url}/{ACCOUNT}/{name}"


def name_of_url(url: str | None) -> str:
    """Return the name of the queue with this URL, or with this path of a URL: its last segment. The rest has no effect.

    Refuses with `MissingParameter` no URL, with `InvalidRequest` what has no path, and with `QueueNotFound` a name that no
    queue can have.
    """
    if not url:
        raise MissingParameter("The request must have a QueueUrl.")
    _, slash, name = _path_of(url).rpartition("/")
    if not slash or not name:
        raise InvalidRequest(f"A QueueUrl has the form https://HOST/{ACCOUNT}/NAME.")
    if not is_valid_name(name):
        raise QueueNotFound
    return name


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:  # such as brackets that enclose no address
        return ""
