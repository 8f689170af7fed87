"""python -m benchmarks.validation: how long the check of a large upload takes, and how much memory.

An upload of chat rows is made (OpenAI's form, 2 to 8 messages of 5 to 60 words, now and then a name, an address or a
number), and taken in as the web application does before it goes to storage: received, hashed, every row checked,
normalised and searched for what is sensitive. Memory is that of the whole process.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from typing import IO

from benchmarks.machine import described, machine
from webapp.datasets.validate import HashedFile, validate

_WORDS = """
    the a we you I it that this and but so when if then not very good late early tomorrow today send bring call
    think know want need see lamp river bread house window garden train letter picture money work weather coffee
    meeting report engine question answer because maybe really almost always never again together Maren Juno Oslo
"""
#: As uploads are received.
_CHUNK = 1 << 20
_SEEN = (
    "write to {0}@example.org",
    "my number is +47 22 {0:02d} 31 {0:02d}",
    "it costs {0} kroner",
    "see you at {0}:30",
)


def upload(file: IO[bytes], megabytes: int) -> int:
    """Write rows until there are so many megabytes; how many rows it took."""
    rng, rows = random.Random(0), 0
    while file.tell() < megabytes * 1_000_000:
        file.write(json.dumps({"messages": _talk(rng)}).encode() + b"\n")
        rows += 1
    return rows


def _talk(rng: random.Random) -> list[dict[str, str]]:
    turns = []
    for number in range(2 * rng.randint(1, 4)):
        words = rng.choices(_WORDS.split(), k=rng.randint(5, 60))
        if rng.random() < 0.05:
            words.append(rng.choice(_SEEN).format(rng.randint(1, 99)))
        turns.append({"role": "assistant" if number % 2 else "user", "content": " ".join(words) + "."})
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validation", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryFile() as file:
        rows = upload(file, arguments.megabytes)
        file.seek(0)
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        raw = HashedFile()
        while chunk := file.read(_CHUNK):
            raw.write(chunk)
        checked = validate(raw.file)
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
    report = checked.report
    assert (report.rows, report.bad) == (rows, 0), "every row is a good one"
    print(
        f"{described(machine())}: {raw.size / 1e6:.0f} MB, {rows:,} rows, {report.examples:,} answers. "
        f"{seconds:.0f} s, of them {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.0f} of the "
        f"processor; peak memory of the whole process {after.ru_maxrss * 1024 / 1e6:.0f} MB, before it began "
        f"{before.ru_maxrss * 1024 / 1e6:.0f} MB."
    )


if __name__ == "__main__":
    main()
