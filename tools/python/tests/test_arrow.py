"""Tables through pandas, Polars, DuckDB and pyarrow, compared with the model; and that they come batch by batch."""

import resource

import pytest

import icecore
from conftest import ingest

HEIGHTS = [1, 33, 150, 300]
LONG = 300_000


def columns(rows, count):
    """Rows as columns."""
    return [list(column) for column in zip(*rows)] if rows else [[] for _ in range(count)]


@pytest.fixture(scope="session")
def long(tmp_path_factory):
    """An archive of several batches; its keys are short, and its values long enough to be counted."""
    lines = ({"block": 1 + i // 3000, "key": f"{i:08}", "value": f"{i:0200}"} for i in range(LONG))
    return ingest(tmp_path_factory.mktemp("long") / "long.ice", lines, "--blocks-per-step", 8, "--reorg-window", 4)


def test_polars(mixed):
    pl = pytest.importorskip("polars")
    place, state = mixed
    archive = icecore.open(place)
    for at in HEIGHTS:
        frame = pl.DataFrame(archive.scan("kv", at=at))
        assert frame.schema == {"key": pl.Binary, "value": pl.Binary, "block": pl.UInt64}
        assert frame.rows() == state.scan(at)
    key = next(iter(state.versions))
    frame = pl.DataFrame(archive.history("kv", key))
    assert frame.rows() == state.history(key, 300)
    keys = [key, b"never written"]
    assert pl.DataFrame(archive.multi_get_rows("kv", keys)).rows() == [(key, state.get(key, 300)), (keys[1], None)]
    empty = pl.DataFrame(archive.history("kv", b"never written"))
    assert empty.shape == (0, 2) and empty.columns == ["block", "value"]


def test_pandas(mixed):
    pd = pytest.importorskip("pandas", minversion="3")
    pytest.importorskip("pyarrow")
    place, state = mixed
    archive = icecore.open(place)
    for at in HEIGHTS:
        frame = pd.DataFrame.from_arrow(archive.scan("kv", at=at))
        assert [list(frame[name]) for name in ["key", "value", "block"]] == columns(state.scan(at), 3)
    key = next(key for key in state.versions if state.get(key, 300) is None)
    frame = pd.DataFrame.from_arrow(archive.history("kv", key))
    blocks, values = columns(state.history(key, 300), 2)
    assert list(frame["block"]) == blocks
    assert [None if pd.isna(value) else value for value in frame["value"]] == values


def test_duckdb(mixed):
    # DuckDB 1.4 takes one stream of what is registered and reads it once.
    duckdb = pytest.importorskip("duckdb", minversion="1.5")
    place, state = mixed
    archive = icecore.open(place)
    with duckdb.connect() as connection:
        connection.execute("set threads = 4")
        for at in HEIGHTS:
            rows = archive.scan("kv", at=at)
            connection.register("state", rows)
            expected = state.scan(at)
            assert connection.sql("select * from state order by key").fetchall() == expected
            newest = [row for row in expected if row[2] == at]
            assert connection.sql(f"from state where block = {at} order by key").fetchall() == newest
            count = len({block for _, _, block in expected})
            assert connection.sql("select count(distinct block) from state").fetchall() == [(count,)]
            joined = "select count(*) from state a join state b on a.key = b.key"
            assert connection.sql(joined).fetchall() == [(len(expected),)], "two streams of one table"
    history = archive.history("kv", b"key/1/1")
    assert history.columns == ["block", "value"]
    assert duckdb.sql("from history order by block desc").fetchall() == state.history(b"key/1/1", 300)


def test_pyarrow_takes_a_batch_at_a_time(long):
    pa = pytest.importorskip("pyarrow")
    table = icecore.open(long).scan("kv")
    reader = pa.RecordBatchReader.from_stream(table)
    assert reader.schema.names == table.columns == ["key", "value", "block"]
    sizes, number = [], 0
    for batch in reader:
        batch.validate(full=True)
        sizes.append(batch.num_rows)
        assert batch.nbytes < 24 << 20
        for key in (batch["key"][0], batch["key"][-1]):
            assert int(key.as_py()) in (number, number + batch.num_rows - 1)
        number += batch.num_rows
    assert number == LONG and len(sizes) > 3, sizes
    assert max(sizes) <= 65_536
    small = pa.RecordBatchReader.from_stream(icecore.open(long).scan("kv", limit=10))
    assert [batch.num_rows for batch in small] == [10]
    assert pa.schema(table) == reader.schema


def test_a_stream_that_is_left_reads_no_more(long, tmp_path):
    pa = pytest.importorskip("pyarrow")
    archive = icecore.open(long)
    reader = pa.RecordBatchReader.from_stream(archive.scan("kv"))
    archive.close()
    first = reader.read_next_batch()
    assert first["key"][0].as_py() == b"00000000"
    del reader
    assert first["key"][-1].as_py() == b"%08d" % (first.num_rows - 1), "a batch outlives its stream"


def test_capsules_that_nobody_takes_are_released(long):
    table = icecore.open(long).scan("kv")
    for _ in range(2000):
        table.__arrow_c_stream__()
        table.__arrow_c_stream__(table.__arrow_c_schema__())
        table.__arrow_c_schema__()
        next(iter(table))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2000):
        table.__arrow_c_stream__()
        next(iter(table))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "KiB"


def test_a_table_is_read_any_number_of_times(mixed):
    pl = pytest.importorskip("polars")
    place, state = mixed
    table = icecore.open(place).scan("kv", at=150)
    rows = state.scan(150)
    assert pl.DataFrame(table).rows() == pl.DataFrame(table).rows() == rows == list(table)
    one, other = iter(table), iter(table)
    assert [next(one), next(one), next(other)] == [rows[0], rows[1], rows[0]]
