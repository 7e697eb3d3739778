"""Archives to test with, made by the command that ICECORE names, or by `icecore`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import icecore

COMMAND = os.path.abspath(os.environ["ICECORE"]) if "ICECORE" in os.environ else shutil.which("icecore")

SAMPLE = [
    {"block": 1, "key": "alice", "value": "100"},
    {"block": 1, "key": "bob", "value": "7"},
    {"block": 2, "key": "alice", "value": "80"},
    {"block": 2, "key": "carol", "value": "20"},
    {"block": 3, "key": "bob", "value": None},
]


def pytest_configure():
    if COMMAND is None:
        raise pytest.UsageError("no command `icecore` to make archives with: build it, and name it in ICECORE")


def command(*arguments, lines=None, cwd=None):
    """Runs the command, and returns what it printed."""
    given = None if lines is None else "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = subprocess.run([COMMAND, *map(str, arguments)], input=given, capture_output=True, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def ingest(place, lines, *options):
    """Adds blocks to an archive, which is created where there is none."""
    create = [] if Path(place).exists() else ["--create", *options]
    command("ingest", place, "-", "--format", "jsonl", "--quiet", "--sync", "relaxed", *create, lines=lines)
    return place


class State:
    """What an archive should hold: every version of every key."""

    def __init__(self, lines):
        self.versions = {}
        self.head = 0
        for line in lines:
            self.versions.setdefault(as_bytes(line["key"]), {})[line["block"]] = as_bytes(line["value"])
            self.head = line["block"]

    def get(self, key, at):
        found = self.history(key, at)
        return found[0][1] if found else None

    def history(self, key, at):
        """Newest first."""
        versions = self.versions.get(key, {})
        return [(block, versions[block]) for block in sorted(versions, reverse=True) if block <= at]

    def scan(self, at):
        """Key, value and block in the order of keys."""
        newest = ((key, self.history(key, at)[:1]) for key in sorted(self.versions))
        return [(key, found[0][1], found[0][0]) for key, found in newest if found and found[0][1] is not None]


def as_bytes(text):
    """A key or value of a line."""
    if text is None:
        return None
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def changes(blocks, keys=400, a_block=60):
    """Blocks of changes that look random and are the same every time, a fifth of them deletions."""
    seed, lines = 1, []
    for block in range(1, blocks + 1):
        chosen = {}
        for _ in range(a_block):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            number = (seed >> 33) % keys
            value = None if (seed >> 20) % 5 == 0 else f"value {seed >> 40}"
            chosen[f"key/{number % 7}/{number}"] = value
        lines += [{"block": block, "key": key, "value": value} for key, value in chosen.items()]
    return lines


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The archive of the examples."""
    return ingest(tmp_path_factory.mktemp("sample") / "chain.ice", SAMPLE)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory):
    """An archive with its older blocks in segments and its newest in the log, and what it should hold."""
    lines = changes(300)
    options = ["--blocks-per-step", 32, "--reorg-window", 16]
    return ingest(tmp_path_factory.mktemp("mixed") / "mixed.ice", lines, *options), State(lines)


@pytest.fixture
def archive(sample):
    with icecore.open(sample) as opened:
        yield opened
