"""Decode and encode each example of the document with the types of the SDK, and print what became of it."""

import json
import sys
from pathlib import Path

import peeklock_sdk as sdk

for one in json.loads(Path(sys.argv[1]).read_text()):
    print(getattr(sdk, one["schema"]).from_json(json.dumps(one["example"])).to_json())
