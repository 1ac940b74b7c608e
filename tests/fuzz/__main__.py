"""Send nonsense for a while; keep what should not have happened."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.federation.harness import run
from tests.fuzz.readers import damage, misread, readers
from tests.fuzz.sessions import Case, attack, federation

CORPUS = Path(__file__).parent / "corpus"


def main() -> int:
    """Run for as long as was asked for; return 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="by default another every time")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    until = time.monotonic() + arguments.seconds
    tried: Counter[str] = Counter()
    found: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="privet-fuzz-") as folder:
        home = Path(folder)
        local, trained = federation(home / "sessions"), federation(home / "readers")
        run(trained, "train").checked()
        known = readers(trained, home)
        while time.monotonic() < until:
            for name, reader in known.items():
                for _ in range(50):
                    content = damage(chance, reader[0])
                    tried[name] += 1
                    problem = misread(reader, content)
                    if problem is not None and f"{name} {problem}" not in found:
                        found.add(f"{name} {problem}")
                        _keep({"reader": name, "content": content.hex(), "problem": problem})
            case = Case.draw(chance)
            tried[f"{case.state}: {case.lie}"] += 1
            if problems := attack(local, case):
                found.add(str(case))
                _keep({**case.record(), "problem": "; ".join(problems)})
    for what, count in sorted(tried.items()):
        print(f"{count:8,} {what}")  # noqa: T201
    print(f"{len(found)} found" + (f"; they are in {CORPUS}" if found else ""))  # noqa: T201
    return bool(found)


def _keep(record: dict[str, object]) -> None:
    """Put what was found into the corpus, where the tests will find it."""
    text = json.dumps(record, indent=1) + "\n"
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    (CORPUS / f"{name}.json").write_text(text)
    print(text)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
