"""The fragments that name the views of a page, and names cut to a length that fits."""

import hashlib
from urllib.parse import quote

from peeklock_pipeline.page.summary import ViewKey

MAX_NAME = 128
"""Letters of a name that a page shows: all of a queue's. Clients choose other names, so they may be longer."""

MAX_FRAGMENT = 200
OVERVIEW = "overview"


def fragment(key: ViewKey) -> str:
    """Return the fragment of a view: queue=orders, group=orders/customer-7, reason=bad. It is also the view's id.

    A long one ends with `~` and a digest, so that no two are equal: others have no `~`.
    """
    if key.kind == "all":
        return OVERVIEW
    names = [name for name in (key.queue, key.name) if name is not None]
    text = f"{key.kind}={'/'.join(quote(name, safe='') for name in names)}".replace("~", "%7E")
    if len(text) <= MAX_FRAGMENT:
        return text
    return f"{text[: MAX_FRAGMENT - 17]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def shortened(name: str) -> str:
    """Return a name of at most `MAX_NAME` letters. One without a visible letter is said by the numbers of its letters."""
    if not any(letter.isprintable() and not letter.isspace() for letter in name):
        name = " ".join(f"U+{ord(letter):04X}" for letter in name)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
