"""The options of the benchmark. They import only the standard library, so `--help` installs nothing."""

import argparse
import os
from pathlib import Path


def option_parser() -> argparse.ArgumentParser:
    """Return the parser of the benchmark's options."""
    parser = argparse.ArgumentParser(
        prog=os.environ.get("BENCH_TYPED_AS", "dev.py bench"),
        description="Print the table, with the reference of each row measured in the same run.",
    )
    parser.add_argument("rows", nargs="*", help="which rows; all but soak and interpreters by default")
    parser.add_argument(
        "--pipeline", action="store_true", help="the rows of the data pipeline instead of the service's"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; figures are only indicative")
    parser.add_argument("--json", type=Path, help="write the table to this file too")
    return parser
