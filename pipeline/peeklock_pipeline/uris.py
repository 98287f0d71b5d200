"""The URI of a lake as it may be printed."""

import re


def without_credentials(place: str) -> str:
    """Return a path, or a URI without the user, password and query that it may have. It may be no URI of a lake."""
    scheme, separator, rest = place.partition("://")
    if not separator:
        return place
    host, slash, path = rest.partition("/")
    if ":" in host:  # a password, which may have a slash
        host, slash, path = rest.rpartition("@")[2].partition("/")
    elif scheme != "abfss" or host.count("@") > 1:  # there, a container precedes the host
        host = host.rpartition("@")[2]
    return re.split("[?#]", f"{scheme}://{host}{slash}{path}")[0]
