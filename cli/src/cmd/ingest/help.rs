//! What `icecore ingest --help` says after the options.

use crate::input::LIMITS;

pub(super) static HELP: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "\
Formats, a JSON object a line; blocks never go down, and the lines of one
block stand together, each of less than 1 GiB. Plain, zstd or gzip:
  jsonl
    {{\"block\":1,\"domain\":\"kv\",\"key\":\"...\",\"value\":\"...\"|null}}
    null deletes. 0x means hex, else UTF-8; --encoding text takes every string
    literally. Of two changes of one key in one block the last counts.
    \"domain\" may be left out where the archive has one. A line
    with \"block\" alone is an empty block.
  eth-changes
    {{\"block\":1,\"address\":\"0x..\",\"field\":\"balance\",\"value\":\"0x..\"|null}}
    field: balance, nonce, code, or storage, which has a \"slot\":\"0x..\" too.
    Into the domains balance, nonce and code (key: the address, 20 bytes) and
    storage (key: address and slot, 52 bytes). balance and nonce become
    minimal big-endian bytes, zero one zero byte; storage 32 bytes. null:
    absent or cleared. Other fields are passed over.
  geth-diff
    A reply of debug_traceBlockByNumber, prestateTracer {{diffMode:true}}, bare
    or as {{\"block\":N,\"response\":reply}}, into the same domains. Transactions
    are folded into one change of the block: the last write wins, a slot that
    only `pre` has is cleared, an account that only `pre` has is destroyed,
    one that only `post` has is born with zeros. A bare reply does not say
    which block it is of: --first-block N numbers them in order.

In an archive of the profile ethereum both become records of accounts, code and
storage, and each block has its state root, computed. A balance or nonce that
is null, with no field of the account set in the block, removes the account and
its slots. With --headers FILE the root must be the one in the header, that of
blocks that are in the archive too: at a block whose root is another one the
command stops with both roots; blocks before it stay. Where the
input lists what blocks touch and leaves EIP-161 to the reader, as block access
lists do, --eip161-from N says from which block on (mainnet: 2675000) empty
accounts go; give it again with every later part of the chain.

{LIMITS}

Several files of one call are merged by block: exporters write one file for
balances and one for storage. A key that two of them give different values in
one block is an error.

A block that is cut off or has a bad line is not taken: the command stops with
file, line and reason and exit code 2; the blocks before it stay. A block that
is in the archive is compared with it and passed over where it is the same, so
the same command given again, or given after a kill, goes on where it stopped.
Where it is not, the command stops with the first block that differs.

Examples:
  icecore ingest chain.ice changes.jsonl --format jsonl --create
  icecore ingest eth.ice changes.jsonl.zst --format eth-changes --create \\
      --blocks-per-step 4096
  icecore ingest state.ice changes.jsonl.zst --format eth-changes --create \\
      --profile ethereum --headers headers.jsonl.zst
  zcat traces.gz | icecore ingest eth.ice - --format geth-diff --sync relaxed"
    )
});
