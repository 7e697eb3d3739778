"""Prints what a call costs and how fast a scan goes, on the machine at hand: `python tools/python/figures.py [ENTRIES] [--rust]`.

It makes an archive of random keys of 20 bytes with values of 32, with the command that ICECORE names. Each time is the best of three
loops over the same work. With `--rust` the same lookups are also made by a Rust program, which cargo compiles first. A scan runs in a
process of its own, which samples how much memory it takes besides mapped files.
"""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import icecore

COMMAND = os.environ.get("ICECORE", "icecore")
A_BLOCK = 2000
LOOKUPS = 200_000


def entry(number):
    data = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=52).digest()
    return data[:20], data[20:]


def build(place, entries):
    options = ["--format", "jsonl", "--create", "--quiet", "--sync", "relaxed", "--blocks-per-step", "64"]
    with subprocess.Popen([COMMAND, "ingest", place, "-", *options], stdin=subprocess.PIPE, text=True) as process:
        for number in range(entries):
            key, value = entry(number)
            block = 1 + number // A_BLOCK
            process.stdin.write(f'{{"block":{block},"key":"0x{key.hex()}","value":"0x{value.hex()}"}}\n')
    assert process.returncode == 0


def best(work):
    """The shortest of three times, in seconds, and what the work returned."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def lookups(place, entries, in_rust):
    archive, dice = icecore.open(place), random.Random(1)
    known = [entry(dice.randrange(entries))[0] for _ in range(LOOKUPS)]
    unknown = [key[::-1] for key in known]
    loops = {
        "a call that only crosses (closed)": lambda: [archive.closed for _ in known],
        "get, a known key": lambda: [archive.get("kv", key) for key in known],
        "get, an unknown key": lambda: [archive.get("kv", key) for key in unknown],
        "multi_get of 1000, for a key": lambda: [
            archive.multi_get("kv", known[at : at + 1000]) for at in range(0, LOOKUPS, 1000)
        ],
    }
    for name, loop in loops.items():
        print(f"{name:42} {1e6 * best(loop)[0] / LOOKUPS:8.2f} us")
    if in_rust:
        manifest = Path(__file__).with_name("Cargo.toml")
        program = ["cargo", "run", "--quiet", "--release", "--manifest-path", manifest, "--example", "lookups"]
        for name, keys in {"a known": known, "an unknown": unknown}.items():
            text = "\n".join(key.hex() for key in keys)
            told = subprocess.run([*program, place], input=text, text=True, capture_output=True, check=True).stdout
            print(f"{f'the same from Rust, {name} key':42} {float(told) / 1000:8.2f} us")


def tuples(rows):
    return sum(1 for _ in rows)


def batches(rows):
    import pyarrow

    return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(rows))


def polars(rows):
    import polars

    return polars.DataFrame(rows).height


def duckdb(rows):
    import duckdb

    return duckdb.sql("select count(*) from rows where octet_length(value) = 32").fetchall()[0][0]


SCANS = {
    "tuples": (tuples, "scan as tuples, none kept"),
    "batches": (batches, "scan as batches, none kept"),
    "duckdb": (duckdb, "scan in a query of DuckDB"),
    "polars": (polars, "scan into a frame of Polars"),
}


def anonymous():
    """Bytes of memory that this process has besides mapped files."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields["RssAnon"].split()[0])


def scan(place, name):
    """Scans in this process, and prints rows, seconds and bytes of memory."""
    work, _ = SCANS[name]
    table = icecore.open(place, resident_budget=0).scan("kv")
    work(icecore.open(place).scan("kv", limit=1))
    before, peak, done = anonymous(), 0, threading.Event()

    def sample():
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, anonymous())

    thread = threading.Thread(target=sample)
    thread.start()
    seconds, rows = best(lambda: work(table))
    done.set()
    thread.join()
    print(rows, seconds, max(0, peak - before))


def scans(place, entries):
    for name, (_, text) in SCANS.items():
        program = [sys.executable, __file__, "--scan", name, place]
        done = subprocess.run(program, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{text:42} skipped: {done.stderr.splitlines()[-1]}")
            continue
        rows, seconds, peak = map(float, done.stdout.split())
        assert rows == entries
        print(f"{text:42} {rows / seconds / 1e6:8.2f} M rows/s, {peak / (1 << 20):6.1f} MiB")


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--rust"]
    if arguments[:1] == ["--scan"]:
        return scan(arguments[2], arguments[1])
    entries = int(arguments[0]) if arguments else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "figures.ice")
        build(place, entries)
        print(f"{entries} entries")
        lookups(place, entries, "--rust" in sys.argv)
        scans(place, entries)


if __name__ == "__main__":
    main()
