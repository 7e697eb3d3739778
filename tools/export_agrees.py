#!/usr/bin/env python3
"""Whether DuckDB, Polars and DataFusion read an export as the archive means it.

    tools/export_agrees.py ICECORE ARCHIVE DOMAIN

Exports the changes of a domain of ARCHIVE as CSV, as JSON lines and, where the command ICECORE has it, as Parquet, has each library that is
installed read them, and makes of the last change of each key the state at the newest block. That must be what `icecore scan` prints. Exit
code 0: all agree, 1: one differs, 77: no library is installed.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile

# The folder of this script has one that is called `datafusion` and is no package of Python.
sys.path.pop(0)

COLUMNS = {"block_number": "BIGINT", "key": "VARCHAR", "from_value": "VARCHAR", "to_value": "VARCHAR"}


def icecore(command, *arguments):
    return subprocess.run([command, *arguments], check=True, capture_output=True, text=True).stdout


def by_duckdb(form, files):
    import duckdb

    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
    read = {
        "csv": f"read_csv('{files}', header = true, columns = {{{columns}}})",
        "jsonl": f"read_json('{files}', format = 'newline_delimited', columns = {{{columns}}})",
        "parquet": f"read_parquet('{files}', hive_partitioning = true)",
    }[form]
    newest = f"select key, arg_max(to_value is not null, block_number) as lives, max(block_number) as at from {read} group by key"
    rows = duckdb.sql(
        f"select n.key, c.to_value from ({newest}) n join {read} c on c.key = n.key and c.block_number = n.at where n.lives"
    )
    return dict(rows.fetchall())


def by_polars(form, files):
    import polars

    types = {"block_number": polars.Int64, "key": polars.String, "from_value": polars.String, "to_value": polars.String}
    if form == "csv":
        rows = polars.scan_csv(files, schema=types)
    elif form == "jsonl":
        rows = polars.scan_ndjson(files, schema=types)
    else:
        rows = polars.scan_parquet(files, hive_partitioning=True)
    newest = rows.sort("block_number").group_by("key").last().filter(polars.col("to_value").is_not_null()).collect()
    return dict(zip(newest["key"], newest["to_value"]))


def by_datafusion(form, files):
    if form != "parquet":
        return None
    import datafusion

    context = datafusion.SessionContext()
    # It takes a folder.
    context.register_parquet("changes", files.split("*")[0])
    newest = """
        select key, last_value(to_value order by block_number) as value, count(*) as changes from changes group by key"""
    rows = context.sql(f"select key, value from ({newest}) as newest where value is not null").to_pylist()
    return {row["key"]: row["value"] for row in rows}


def main():
    command, archive, domain = sys.argv[1:]
    readers = {"duckdb": by_duckdb, "polars": by_polars, "datafusion": by_datafusion}
    installed = {name: read for name, read in readers.items() if importlib.util.find_spec(name)}
    for name in readers.keys() - installed.keys():
        print(f"{name} is not installed: left out")
    if not installed:
        return 77
    lines = icecore(command, "scan", archive, "--domain", domain, "--json").splitlines()
    expected = dict(json.loads(line) for line in lines)
    lines = icecore(command, "scan", archive, "--domain", domain, "--json", "--encoding", "hex").splitlines()
    expected_bytes = {bytes.fromhex(key[2:]): bytes.fromhex(value[2:]) for key, value in map(json.loads, lines)}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for form in ("csv", "jsonl", "parquet"):
            out = f"{folder}/{form}"
            try:
                told = icecore(command, "export", archive, "--format", form, "--out", out, "--domain", domain, "--check", "--json")
            except subprocess.CalledProcessError as error:
                if "--features parquet" not in error.stderr:
                    raise
                print("this command has no Parquet: left out")
                continue
            rows = json.loads(told)["rows_written"]
            wanted = {
                # In CSV an empty field is an absent value, so an empty one is written as no bytes of hex.
                "csv": {key: value or "0x" for key, value in expected.items()},
                "jsonl": expected,
                "parquet": expected_bytes,
            }[form]
            for name, read in installed.items():
                found = read(form, f"{out}/domain={domain}/*/part.{form}")
                if found is None:
                    continue
                agrees = found == wanted
                failed |= not agrees
                print(f"{name} {form}: {rows} rows, {len(found)} keys, {'agrees' if agrees else 'DIFFERS'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
