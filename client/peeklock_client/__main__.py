"""`python -m peeklock_client` is `peeklock-worker`."""

import sys

from peeklock_client.command.main import main

if __name__ == "__main__":
    sys.exit(main())
