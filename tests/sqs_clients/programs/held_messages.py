"""What both workers do with a message: they report it, and hold it until they may go on."""

import time
from pathlib import Path

POLL_SECONDS = 0.05


def handle(body, directory):
    """Print the body and write it to the log. Return once a file says that workers may go on."""
    with Path(directory, "handled").open("a") as log:
        log.write(f"{body}\n")
    print(body, flush=True)
    while not Path(directory, "may-go-on").exists():
        time.sleep(POLL_SECONDS)
