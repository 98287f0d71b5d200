"""The reasons for which a job refuses: each prints a sentence for the user of the command, with exit status 2."""


class Refusal(Exception):
    """Nothing was changed, or the work done so far stays valid. The text tells the user what to do."""


class BadDatabaseUrl(Refusal):
    """The URL names no database that has an archive."""


class DatabaseUnavailable(Refusal):
    """The database does not answer, or holds no archive."""


class BadArchive(Refusal):
    """The archive differs from what was sealed."""


class SparkUnavailable(Refusal):
    """Spark does not start, or Java is missing."""


class TasksFailed(Refusal):
    """Spark's tasks crashed, and so did their retries."""


class BadLake(Refusal):
    """The directory is not a lake, or is a lake of another database or of a newer version."""


class LakeUnavailable(Refusal):
    """The object store of a lake does not answer, or refuses."""


class BadExpression(Refusal):
    """A filter that Spark cannot parse, or that names an unknown column."""


class ServerUnavailable(Refusal):
    """The server does not answer, or refuses a request."""


class BadOption(Refusal):
    """An option is missing, unknown or out of bounds."""


class BadColumns(Refusal):
    """Rows cannot be sent as messages: a column is unknown, or has an unsupported type."""


class BatchesLost(Refusal):
    """Sealed batches were removed from the archive before they were read."""


class InDoubt(Refusal):
    """Messages may have been sent, and the queue has forgotten their ids since."""


class NoDuplicateDetection(Refusal):
    """The queue does not detect duplicates, so it would store a repeated message twice."""


class SendRefused(Refusal):
    """The server refuses a request; repeating it does not help."""


class EmptyLake(Refusal):
    """Nothing was exported to the lake yet."""


class UnknownQueue(Refusal):
    """The lake has no message of a queue with that name."""


class BadPolicy(Refusal):
    """A policy is not one that a queue can have."""
