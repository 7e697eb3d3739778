"""Every read, compared with a model of what the archive should hold."""

import json
import subprocess

import pytest

import icecore
from conftest import COMMAND, SAMPLE, State, changes, command, ingest

HEIGHTS = [1, 2, 31, 32, 33, 150, 256, 283, 284, 299, 300]


def test_lookups_agree_with_the_model(mixed):
    place, state = mixed
    with icecore.open(place) as archive:
        keys = [*state.versions, b"", b"key/", b"never written", b"\xff" * 1024]
        for at in HEIGHTS:
            expected = [state.get(key, at) for key in keys]
            assert [archive.get("kv", key, at=at) for key in keys] == expected
            assert archive.multi_get("kv", keys, at=at) == expected
            assert list(archive.multi_get_rows("kv", keys, at)) == list(zip(keys, expected))
        assert [archive.get("kv", key) for key in keys] == [state.get(key, state.head) for key in keys]


def test_histories_agree_with_the_model(mixed):
    place, state = mixed
    archive = icecore.open(place)
    for key in [*list(state.versions)[::9], b"never written"]:
        assert list(archive.history("kv", key)) == state.history(key, state.head)
        for at in HEIGHTS:
            assert list(archive.history("kv", key, at=at)) == state.history(key, at)


def test_scans_agree_with_the_model(mixed):
    place, state = mixed
    archive = icecore.open(place)
    for at in HEIGHTS:
        rows = state.scan(at)
        assert list(archive.scan("kv", at=at)) == rows
        assert list(archive.scan("kv", at=at, reverse=True)) == rows[::-1]
        assert list(archive.scan("kv", at=at, limit=5)) == rows[:5]
        assert list(archive.scan("kv", at=at, limit=0)) == []
        low, high = b"key/2/", b"key/4/3"
        assert list(archive.scan("kv", at=at, prefix=low)) == [row for row in rows if row[0].startswith(low)]
        between = [row for row in rows if low <= row[0] < high]
        assert list(archive.scan("kv", at=at, start=low, end=high)) == between
        assert list(archive.scan("kv", at=at, start=high, end=low)) == []
        after = between[len(between) // 2][0]
        assert list(archive.scan("kv", at=at, after=after, end=high)) == [row for row in between if after < row[0]]
        before = [row for row in between if row[0] < after][::-1]
        assert list(archive.scan("kv", at=at, start=low, after=after, reverse=True)) == before


def test_changes_agree_with_the_model(mixed):
    place, state = mixed
    archive = icecore.open(place)
    expected = []
    for key, versions in state.versions.items():
        before = None
        for block in sorted(versions):
            expected.append((block, "kv", key, before, versions[block]))
            before = versions[block]
    expected.sort(key=lambda row: (row[0], row[2]))
    assert list(archive.changes()) == expected
    for start, end in [(1, 2), (5, 90), (250, 301), (300, 301), (31, 33), (7, 7)]:
        rows = [row for row in expected if start <= row[0] < end]
        assert list(archive.changes(start, end)) == rows
        assert list(archive.changes(start, end, domain="kv")) == rows
    assert list(archive.changes(start=299)) == [row for row in expected if row[0] >= 299]
    assert list(archive.changes(end=3)) == [row for row in expected if row[0] < 3]
    assert list(archive.changes(start=301)) == [], "nothing yet"
    for bounds in [(0, 5), (5, 302), (302, None)]:
        with pytest.raises(icecore.OutOfRangeError, match="1 to 300"):
            archive.changes(*bounds)
    with pytest.raises(icecore.UnknownDomainError):
        archive.changes(domain="nope")
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(archive.changes(5, 90))
    assert frame.rows() == [row for row in expected if 5 <= row[0] < 90]
    assert frame.schema["domain"] == pl.String


def test_domains_have_their_own_keys(tmp_path):
    lines = [
        {"block": 5, "domain": "balance", "key": "0x" + "ab" * 20, "value": "0x05"},
        {"block": 5, "domain": "owner", "key": "house", "value": "alice"},
    ]
    place = ingest(tmp_path / "a.ice", lines, "--domain", "balance:20,owner")
    archive = icecore.open(str(place))
    assert archive.domains == {"balance": 20, "owner": None}
    assert archive.range == (5, 5)
    assert archive.get("balance", b"\xab" * 20) == b"\x05"
    assert archive.get("owner", b"house") == b"alice"
    for key in [b"", b"\xab" * 19, b"\xab" * 21]:
        for read in [archive.get, archive.history, archive.prove]:
            with pytest.raises(icecore.MisuseError, match="20 bytes"):
                read("balance", key)
        with pytest.raises(icecore.MisuseError, match="20 bytes"):
            archive.multi_get("balance", [b"\xab" * 20, key])
    for name in ["kv", "", "\0", "_roots", "owner/..", "\ud83d\ude00" * 99]:
        with pytest.raises((icecore.UnknownDomainError, UnicodeEncodeError)):
            archive.scan(name)


def test_roots_are_those_of_the_command(mixed):
    place, _ = mixed
    archive = icecore.open(place)
    for at in HEIGHTS:
        assert "0x" + archive.root(at=at).hex() == command("root", place, "--at", at).strip()
    assert archive.root() == archive.root(at=300)


def test_a_proof_holds_for_what_it_proves_and_nothing_else(mixed, tmp_path):
    place, state = mixed
    archive = icecore.open(place)
    present = next(key for key, value, _ in state.scan(200))
    for key in [present, b"never written"]:
        proof = archive.prove("kv", key, at=200)
        value, root = state.get(key, 200), archive.root(at=200)
        assert (proof.domain, proof.key, proof.value, proof.block, proof.root) == ("kv", key, value, 200, root)
        proof.verify(root)
        for given in [proof, proof.ics23, bytearray(proof.ics23), memoryview(proof.ics23)]:
            icecore.verify(given, "0x" + root.hex(), "kv", key, value)
        wrong = [
            (root, "kv", key, b"another value"),
            (root, "kv", b"another key", value),
            (root, "another", key, value),
            (archive.root(at=199), "kv", key, value),
        ]
        for claim in wrong:
            with pytest.raises(icecore.ProofError):
                icecore.verify(proof, *claim)
        with pytest.raises(icecore.ProofError):
            icecore.verify(proof, root, "kv", key, None if value else b"a value")
        for at in range(0, len(proof.ics23), 7):
            damaged = bytearray(proof.ics23)
            damaged[at] ^= 1
            with pytest.raises(icecore.ProofError):
                icecore.verify(damaged, root, "kv", key, value)
        (tmp_path / "proof.json").write_text(proof.to_json())
        assert "verified" in command("verify-proof", tmp_path / "proof.json", "--root", "0x" + root.hex())
        printed = command("prove", place, "0x" + key.hex(), "--at", 200)
        assert icecore.Proof.from_json(printed) == proof
        assert json.loads(printed) == json.loads(proof.to_json())


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"domain":1}', "[" * 100_000, b"\xff", '{"domain":"kv","key":"0xzz","value":null}'],
    ids=range(8),
)
def test_what_is_no_proof_is_refused(text):
    with pytest.raises(icecore.ProofError):
        icecore.Proof.from_json(text)


def test_refresh_shows_new_blocks_and_tables_stay(tmp_path):
    place = ingest(tmp_path / "a.ice", SAMPLE[:2])
    archive = icecore.open(place)
    before = archive.scan("kv")
    assert archive.refresh() is False and archive.range == (1, 1)
    ingest(place, SAMPLE[2:])
    assert archive.get("kv", b"alice") == b"100", "as of the last refresh"
    assert archive.refresh() is True and archive.range == (1, 3)
    assert archive.refresh() is False
    assert archive.get("kv", b"alice") == b"80"
    assert list(before) == [(b"alice", b"100", 1), (b"bob", b"7", 1)]
    assert list(archive.scan("kv")) == [(b"alice", b"80", 2), (b"carol", b"20", 2)]


def test_an_archive_without_blocks(tmp_path):
    command("create", tmp_path / "a.ice", "--domain", "kv")
    archive = icecore.open(tmp_path / "a.ice")
    assert archive.range is None
    for read in [archive.root, lambda: archive.get("kv", b"a"), lambda: archive.scan("kv")]:
        with pytest.raises(icecore.OutOfRangeError, match="no block"):
            read()


def test_a_pruned_height_says_what_can_be_read(tmp_path):
    place = ingest(tmp_path / "a.ice", changes(300), "--blocks-per-step", 16, "--reorg-window", 8)
    command("prune", place, "--before", 200)
    archive = icecore.open(place)
    first, head = archive.range
    assert (first, head) == (200, 300)
    state = State(changes(300))
    assert list(archive.scan("kv", at=first)) == state.scan(first)
    with pytest.raises(icecore.OutOfRangeError, match="block 199 is out of range: the archive has blocks 200 to 300"):
        archive.get("kv", b"a", at=first - 1)
    with pytest.raises(LookupError):
        archive.root(at=head + 1)


def test_a_bucket_reads_like_the_directory(mixed, tmp_path):
    place, state = mixed
    url = (tmp_path / "bucket").as_uri()
    if subprocess.run([COMMAND, "push", "--help"], capture_output=True).returncode != 0:
        pytest.skip("this command was built without object storage")
    command("push", place, url)
    with icecore.open(url, cache=tmp_path / "cache", cache_size=1 << 30, fetch=4096, warm="bt") as archive:
        _, head = archive.range
        opening = archive.remote_cost()
        assert opening["requests"] > 0 and set(opening) == {"requests", "retries", "bytes", "waits"}
        table = archive.scan("kv", at=100)
        assert archive.remote_cost() == opening, "a table reads nothing before it is asked for"
        assert list(table) == state.scan(100)
        assert archive.remote_cost()["requests"] > opening["requests"]
        keys = list(state.versions)
        assert archive.multi_get("kv", keys, at=head) == [state.get(key, head) for key in keys]
        assert archive.root(at=head) == icecore.open(place).root(at=head)
        assert archive.refresh() is False
    with pytest.raises(icecore.NotFoundError):
        icecore.open(url, cache=tmp_path / "cache", archive="another")
    with pytest.raises(icecore.NotFoundError):
        icecore.open(url, cache=tmp_path / "cache", generation=99)
    with pytest.raises(icecore.MisuseError, match="fetch"):
        icecore.open(url, cache=tmp_path / "cache", fetch=1)


# A secret key of minisign without a password, its public key, and a public key that is not its.
SECRET = """untrusted comment: minisign encrypted secret key
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALm8vScJ3Nz0Jx6++vAbTbVO8HWcJQav2dHdHZe\
rmjFtNHqyOAPNVtVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAuAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
"""
PUBLIC = "RWQuby9Jwnc3PVapiNZ485Pv7c3GeCRwBzrJ6F4W+6ihztl0dXEfvVAu"
STRANGER = "RWTVqAsg9qkmsAADKojSuO1jWvb/fDhBEGSM12OWm0VLZh9l5v/YKVFf"


def test_what_is_signed_is_believed_and_nothing_else(mixed, tmp_path):
    place, state = mixed
    url, cache = (tmp_path / "bucket").as_uri(), tmp_path / "cache"
    if subprocess.run([COMMAND, "push", "--help"], capture_output=True).returncode != 0:
        pytest.skip("this command was built without object storage")
    command("push", place, url)
    with pytest.raises(icecore.CorruptError, match="it is not signed"):
        icecore.open(url, cache=cache, pubkey=PUBLIC)
    (tmp_path / "secret.key").write_text(SECRET)
    (tmp_path / "public.key").write_text(f"untrusted comment: minisign public key\n{PUBLIC}\n")
    command("push", place, url, "--sign", tmp_path / "secret.key")
    for key in [PUBLIC, tmp_path / "public.key", str(tmp_path / "public.key")]:
        with icecore.open(url, cache=cache, pubkey=key) as archive:
            assert list(archive.scan("kv", at=100)) == state.scan(100)
    with pytest.raises(icecore.CorruptError, match="signed by another key"):
        icecore.open(url, cache=cache, pubkey=STRANGER)
    for key in ["no such file", "", tmp_path, "a\0b", "RWQ"]:
        with pytest.raises(icecore.MisuseError, match="neither a public key of minisign nor a file with one"):
            icecore.open(url, cache=cache, pubkey=key)
    with pytest.raises(icecore.MisuseError, match="no public key of minisign"):
        icecore.open(url, cache=cache, pubkey=tmp_path / "secret.key")
    with pytest.raises(icecore.MisuseError, match="pubkey is an option of a bucket"):
        icecore.open(place, pubkey=PUBLIC)


def test_a_part_never_passes_for_the_whole(mixed, tmp_path):
    place, state = mixed
    url, part = (tmp_path / "bucket").as_uri(), tmp_path / "part.ice"
    if subprocess.run([COMMAND, "push", "--help"], capture_output=True).returncode != 0:
        pytest.skip("this command was built without object storage")
    command("push", place, url)
    command("pull", url, part, "--domain", "kv", "--blocks", "..2")
    if "not held" not in command("ls", part):
        pytest.skip("the archive has one segment a domain")
    with icecore.open(part) as archive:
        first, head = archive.range
        assert archive.get("kv", next(iter(state.versions)), at=first) == state.get(next(iter(state.versions)), first)
        asked = [
            lambda: archive.get("kv", b"no such key"),
            lambda: archive.multi_get("kv", [b"no such key"]),
            lambda: list(archive.scan("kv")),
            lambda: list(archive.history("kv", b"no such key")),
        ]
        for ask in asked:
            with pytest.raises(icecore.NotHeldError, match="icecore pull BUCKET .* --domain kv --blocks") as raised:
                ask()
            assert isinstance(raised.value, LookupError)
        assert archive.root(at=head) == icecore.open(place).root(at=head)
