"""Why a job cannot be done: each a sentence for whoever typed the command, and exit status 2."""


class Refusal(Exception):
    """Nothing was changed, or what was done stays valid; the text says what to do about it."""


class BadDatabaseUrl(Refusal):
    """The URL names no database that has an archive."""


class DatabaseUnavailable(Refusal):
    """The database does not answer, or has no archive in it."""


class BadArchive(Refusal):
    """The archive is not what was sealed in it."""


class TasksFailed(Refusal):
    """Spark's tasks died, and so did their repetitions."""


class BadLake(Refusal):
    """The directory is no lake, one of another database, or one that a newer version has written."""


class BadExpression(Refusal):
    """A filter that Spark does not understand, or that names a column there is not."""


class ServerUnavailable(Refusal):
    """The server does not answer, or refuses what it is asked."""


class BadOption(Refusal):
    """An option that is missing, unknown or out of bounds."""


class BadColumns(Refusal):
    """Rows that cannot be sent as messages: a column that a message does not have, or of a type that it cannot take."""


class BatchesLost(Refusal):
    """Sealed batches were removed from the archive before they were read."""


class InDoubt(Refusal):
    """Messages may have been sent longer ago than the queue remembers them."""


class NoDuplicateDetection(Refusal):
    """The queue stores what is sent to it again a second time."""


class SendRefused(Refusal):
    """The server does not take a request, however often it is made."""


class EmptyLake(Refusal):
    """Nothing was exported to the lake yet."""


class UnknownQueue(Refusal):
    """No message in the lake was in a queue of that name."""


class BadPolicy(Refusal):
    """A policy that no queue could have."""
