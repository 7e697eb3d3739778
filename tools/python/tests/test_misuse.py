"""Hostile arguments, damaged archives, closed ones, threads, forks and signals: exceptions, and nothing worse."""

import gc
import itertools
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref

import pytest

import icecore
from conftest import State, changes, ingest


class Hostile:
    """Something that raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __iter__(self):
        yield b"alice"
        raise RuntimeError("iter")

    def __index__(self):
        raise RuntimeError("index")


def test_wrong_types_are_type_errors(archive):
    for key in ["alice", 5, None, [97], 1.5, object(), (b"alice",)]:
        for call in [archive.get, archive.history, archive.prove]:
            with pytest.raises(TypeError):
                call("kv", key)
        if key is not None:
            for bound in ["prefix", "start", "end", "after"]:
                with pytest.raises(TypeError):
                    archive.scan("kv", **{bound: key})
    with pytest.raises(TypeError, match="keys and values are bytes, not str"):
        archive.get("kv", "alice")
    for keys in [None, 5, b"alice", "alice", [None], [b"alice", "bob"]]:
        for call in [archive.multi_get, archive.multi_get_rows]:
            with pytest.raises(TypeError):
                call("kv", keys)
    for domain in [None, 5, b"kv", ["kv"]]:
        with pytest.raises(TypeError):
            archive.get(domain, b"alice")
    for at in ["1", 1.0, b"1", [1], object()]:
        with pytest.raises(TypeError):
            archive.get("kv", b"alice", at=at)
    for place in [None, 5, [], Hostile()]:
        with pytest.raises((TypeError, RuntimeError)):
            icecore.open(place)
    with pytest.raises(TypeError):
        icecore.Archive()
    with pytest.raises(TypeError):
        icecore.Rows()
    with pytest.raises(TypeError):
        icecore.verify(5, bytes(32), "kv", b"", b"")


def test_wrong_values_are_refused(archive):
    for at in [-1, 2**64, 10**30]:
        with pytest.raises(icecore.MisuseError):
            archive.get("kv", b"alice", at=at)
        with pytest.raises(ValueError):
            archive.scan("kv", limit=at)
    with pytest.raises(icecore.OutOfRangeError):
        archive.get("kv", b"alice", at=2**64 - 1)
    assert archive.get("kv", b"") is None
    assert archive.get("kv", bytes(10**6)) is None, "longer than any key"
    assert list(archive.scan("kv", prefix=b"\xff" * 5000)) == []
    for root in [b"", bytes(31), bytes(33), "0x", "zz" * 32, "0x" + "00" * 33]:
        with pytest.raises(icecore.MisuseError, match="32 bytes"):
            icecore.verify(b"", root, "kv", b"", b"")
    for text in [b"", b"\0" * 9999, os.urandom(4096)]:
        with pytest.raises(icecore.ProofError):
            icecore.verify(text, bytes(32), "kv", b"k", b"v")
    for options in [{"cache": "c"}, {"warm": "all"}, {"generation": 1}, {"endpoint": "http://a"}, {"fetch": 4096}]:
        with pytest.raises(icecore.MisuseError, match=next(iter(options))):
            icecore.open("chain.ice", **options)
    with pytest.raises(icecore.MisuseError, match="resident_budget"):
        icecore.open("memory://a", resident_budget=0)
    with pytest.raises(icecore.MisuseError, match="warm"):
        icecore.open("memory://a", warm="some")
    for url in ["ftp://a", "s3://", "s3://KEY:SECRET@b/p", "://", "s3://b/../p"]:
        with pytest.raises(icecore.MisuseError) as raised:
            icecore.open(url)
        assert "SECRET" not in str(raised.value)


def test_what_an_argument_raises_passes_through(archive):
    with pytest.raises(RuntimeError, match="iter"):
        archive.multi_get("kv", Hostile())
    with pytest.raises(RuntimeError, match="index"):
        archive.get("kv", b"alice", at=Hostile())
    assert archive.multi_get("kv", (key for key in [b"alice", b"bob"])) == [b"80", None]
    assert archive.get("kv", memoryview(b"a-l-i-c-e")[::2]) == b"80"


def test_errors_are_one_family(tmp_path):
    for name in icecore.__all__:
        found = getattr(icecore, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, icecore.Error) and found.__doc__
    with pytest.raises(FileNotFoundError, match="no archive at"):
        icecore.open(tmp_path / "nothing")
    (tmp_path / "file").write_text("text")
    with pytest.raises(icecore.StorageError):
        icecore.open(tmp_path / "file")
    with pytest.raises(OSError):
        icecore.open("a\0b")


def test_a_closed_archive_refuses_and_its_tables_go_on(sample):
    with icecore.open(sample) as archive:
        table, rows = archive.scan("kv", at=1), iter(archive.history("kv", b"alice"))
        assert not archive.closed
    assert archive.closed and "closed" in repr(archive)
    archive.close()
    calls = [
        lambda: archive.get("kv", b"alice"),
        lambda: archive.multi_get("kv", []),
        lambda: archive.multi_get_rows("kv", []),
        lambda: archive.scan("kv"),
        lambda: archive.history("kv", b"alice"),
        archive.changes,
        lambda: archive.prove("kv", b"alice"),
        archive.root,
        archive.refresh,
        archive.remote_cost,
        lambda: archive.range,
        lambda: archive.domains,
    ]
    for call in calls:
        with pytest.raises(icecore.ClosedError):
            call()
    assert list(table) == [(b"alice", b"100", 1), (b"bob", b"7", 1)]
    assert list(rows) == [(2, b"80"), (1, b"100")]


def test_handles_are_collected(sample):
    archive = icecore.open(sample)
    gone = weakref.ref(archive)
    table = archive.scan("kv")
    del archive
    gc.collect()
    assert gone() is None
    assert len(list(table)) == 2
    mapped = str(sample)
    del table
    gc.collect()
    if os.path.exists("/proc/self/maps"):
        with open("/proc/self/maps") as maps:
            assert mapped not in maps.read()


def read_all(place, state):
    """Reads everything, and says whether it met damage. Any other answer must be right."""
    damaged = False
    try:
        archive = icecore.open(place, resident_budget=0)
    except (icecore.CorruptError, icecore.UnsupportedError, icecore.NotFoundError, icecore.StorageError):
        return True
    keys = list(state.versions)[::25]
    for at in [60, 250]:
        reads = [
            lambda: [archive.get("kv", key, at=at) for key in keys] == [state.get(key, at) for key in keys],
            lambda: archive.multi_get("kv", keys, at=at) == [state.get(key, at) for key in keys],
            lambda: list(archive.scan("kv", at=at)) == state.scan(at),
            lambda: list(archive.history("kv", keys[0], at=at)) == state.history(keys[0], at),
            lambda: len(archive.root(at=at)) == 32,
        ]
        for read in reads:
            try:
                assert read()
            except (icecore.CorruptError, icecore.UnsupportedError) as error:
                assert str(place) in str(error) or "block" in str(error), error
                damaged = True
            except icecore.OutOfRangeError:
                damaged = True
    return damaged


def test_damage_is_an_exception_or_the_right_answer(mixed, tmp_path):
    place, state = mixed
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.stat().st_size > 0)
    dice, met = random.Random(7), 0
    for round in range(60):
        copy = tmp_path / str(round)
        shutil.copytree(place, copy)
        target = copy / dice.choice(files).relative_to(place)
        data = bytearray(target.read_bytes())
        at = dice.randrange(len(data))
        if round % 3 == 2:
            data = data[:at]
        else:
            data[at] ^= 1 << dice.randrange(8)
        target.write_bytes(data)
        met += read_all(copy, state)
        shutil.rmtree(copy)
    assert met > 5, "the damage is met"


def test_damage_below_a_consumer_of_arrow_is_its_exception(mixed, tmp_path):
    import polars as pl

    place, _ = mixed
    copy = tmp_path / "a.ice"
    shutil.copytree(place, copy)
    for path in copy.rglob("kv.*.kv"):
        data = bytearray(path.read_bytes())
        for page in range(4096, len(data) - 4096, 4096):
            data[page + 100] ^= 255
        path.write_bytes(data)
    table = icecore.open(copy).scan("kv")
    for _ in range(2):
        with pytest.raises(icecore.CorruptError, match="restore the file"):
            list(table)
        # Before version 2 that of Polars is no `Exception`.
        with pytest.raises(BaseException, match="restore the file"):
            pl.DataFrame(table)


def test_many_threads_share_one_archive(mixed):
    place, state = mixed
    archive = icecore.open(place)
    keys, failures = list(state.versions), []
    shared = iter(archive.scan("kv", at=200))
    seen = []

    def work(seed):
        dice = random.Random(seed)
        try:
            for _ in range(300):
                key, at = dice.choice(keys), dice.randrange(1, 301)
                assert archive.get("kv", key, at=at) == state.get(key, at)
            assert list(archive.scan("kv", at=at)) == state.scan(at)
            archive.refresh()
            seen.extend(shared)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(seen) == state.scan(200), "an iterator that threads share gives each row once"


def test_closing_while_others_read(mixed):
    place, state = mixed
    for _ in range(20):
        archive, ends = icecore.open(place), []

        def read():
            try:
                while True:
                    archive.multi_get("kv", [b"key/1/1", b"key/2/2"], at=100)
            except icecore.ClosedError as error:
                ends.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        archive.close()
        for thread in threads:
            thread.join()
        assert len(ends) == 4


def test_other_threads_run_while_a_proof_is_made(tmp_path):
    lines = [{"block": 1 + i // 5000, "key": f"key/{i}", "value": str(i)} for i in range(40_000)]
    archive = icecore.open(ingest(tmp_path / "a.ice", lines))
    ticks, done = itertools.count(), threading.Event()

    def tick():
        while not done.is_set():
            next(ticks)
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    before = next(ticks)
    archive.prove("kv", b"key/1", at=7).verify(archive.root(at=7))
    during = next(ticks) - before
    done.set()
    thread.join()
    assert during > 3


INTERRUPTED = """
import icecore, os, signal, sys, threading, time
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "importing leaves it"
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    icecore.open("s3://bucket/prefix", endpoint=sys.argv[1], region="here", cache=sys.argv[2])
except KeyboardInterrupt:
    print(0.25 < time.monotonic() - start < 1.5)
"""


def test_ctrl_c_ends_a_call_that_waits(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
        # A shell starts what it puts in the background with the signal ignored, which a child takes over.
        heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        program = [sys.executable, "-c", heeding + INTERRUPTED, endpoint, tmp_path / "cache"]
        environment = {**os.environ, **keys}
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_server_that_does_not_answer_is_an_exception(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(icecore.StorageError, match="check the network"):
        icecore.open("s3://bucket/prefix", endpoint=endpoint, region="here", cache=tmp_path / "cache")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_opens_for_itself(mixed):
    place, state = mixed
    archive = icecore.open(place)
    table, rows = archive.scan("kv", at=100), iter(archive.scan("kv", at=100))
    first = next(rows)

    def child():
        for call in [
            lambda: archive.get("kv", b"a"),
            lambda: archive.multi_get("kv", [b"a"]),
            archive.refresh,
            lambda: archive.range,
            lambda: list(table),
            table.__arrow_c_stream__,
            lambda: next(rows),
        ]:
            try:
                call()
                os._exit(1)
            except icecore.ClosedError as error:
                if "fork" not in str(error):
                    os._exit(2)
        with icecore.open(place) as own:
            if list(own.scan("kv", at=100)) != state.scan(100):
                os._exit(3)
        archive.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    code = process.exitcode
    process.kill()
    assert code == 0
    assert [first, *rows] == state.scan(100), "the parent goes on"


def test_reads_beside_a_writer(tmp_path):
    lines = changes(120)
    state = State(lines)
    place = ingest(tmp_path / "a.ice", [line for line in lines if line["block"] <= 20], "--blocks-per-step", 8)
    archive, stop, failures = icecore.open(place), threading.Event(), []

    def read():
        try:
            while not stop.is_set():
                archive.refresh()
                first, head = archive.range
                assert list(archive.scan("kv", at=head, prefix=b"key/3")) == [
                    row for row in state.scan(head) if row[0].startswith(b"key/3")
                ]
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for upto in range(30, 121, 30):
        ingest(place, [line for line in lines if upto - 30 < line["block"] <= upto and line["block"] > 20])
    stop.set()
    thread.join()
    assert failures == []
    archive.refresh()
    assert archive.range == (1, 120)
