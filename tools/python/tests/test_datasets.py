"""Real data with answers that nobody here wrote: `shared/datasets` beside the repository, or the folder that ICECORE_DATASETS names."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import icecore
from conftest import command

DATASETS = Path(os.environ.get("ICECORE_DATASETS", Path(__file__).parents[3] / "../shared/datasets"))


def dataset(name):
    """The folder of a data set, if it is there."""
    if not (DATASETS / name).is_dir():
        pytest.skip(f"no data set at {DATASETS / name}")
    return DATASETS / name


def lines(path):
    """The lines of a file packed by zstd."""
    try:
        unpacked = subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no command zstd to unpack answers with")
    return [json.loads(line) for line in unpacked.splitlines()]


@pytest.fixture(scope="module")
def pebble(tmp_path_factory):
    folder, place = dataset("git-pebble"), tmp_path_factory.mktemp("pebble") / "pebble.ice"
    options = ["--create", "--quiet", "--sync", "relaxed", "--blocks-per-step", 64, "--reorg-window", 100]
    command("ingest", place, folder / "changes.jsonl.zst", "--format", "jsonl", *options)
    return folder, icecore.open(place)


def test_git_knows_every_value(pebble):
    folder, archive = pebble
    by_block = {}
    for line in lines(folder / "oracle_reads.jsonl.zst"):
        key, value = line["key"].encode(), line["value"]
        value = None if value is None else value.encode()
        assert archive.get("kv", key, at=line["block"]) == value, line
        by_block.setdefault(line["block"], []).append((key, value))
    for block, expected in by_block.items():
        keys = [key for key, _ in expected]
        assert archive.multi_get("kv", keys, at=block) == [value for _, value in expected]
    assert len(by_block) > 100


def test_git_knows_every_folder(pebble):
    pl = pytest.importorskip("polars")
    folder, archive = pebble
    for line in lines(folder / "oracle_prefix.jsonl.zst"):
        table = archive.scan("kv", prefix=line["prefix"].encode(), at=line["block"])
        expected = [(key.encode(), value.encode()) for key, value in line["items"]]
        assert [(key, value) for key, value, _ in table] == expected
        assert pl.DataFrame(table).select("key", "value").rows() == expected


def test_the_log_of_git_is_the_history_of_every_path(pebble):
    folder, archive = pebble
    versions = {}
    for line in lines(folder / "changes.jsonl.zst"):
        value = line["value"]
        versions.setdefault(line["key"].encode(), {})[line["block"]] = None if value is None else value.encode()
    for key, changes in list(versions.items())[::5]:
        assert dict(archive.history("kv", key)) == changes
