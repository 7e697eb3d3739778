//! SQL over an archive: `cargo run --example query -- chain.ice "select count(*) from state('kv', 17)"`.
//!
//! The archive is a directory, or in a bucket: `s3://BUCKET/PREFIX`, `file:///FOLDER`. `--pubkey KEY` before it believes only what that key of
//! minisign signed. Without arguments it makes an archive of its own and asks what is asked of balances most.

use std::error::Error;
use std::path::Path;

use datafusion::prelude::SessionContext;
use icecore::remote::{Bucket, BucketOptions, RemoteOptions, default_cache};
use icecore::{Archive, Options, Reader};

/// The questions that are asked without arguments, and what they are for.
const QUESTIONS: [(&str, &str); 5] = [
    (
        "the richest at block 3",
        "\
select cast(key as varchar) as account, cast(cast(value as varchar) as bigint) as balance, block
from state('balance', 3) order by balance desc limit 2",
    ),
    (
        "who was there at block 1 and is gone at block 3",
        "\
select cast(before.key as varchar) as account from state('balance', 1) before
left join state('balance', 3) now on before.key = now.key where now.key is null",
    ),
    (
        "all accounts whose names begin with a: a bound of the scan",
        "\
select count(*) as accounts from state('balance') where has_prefix(key, X'61')",
    ),
    (
        "what became of alice since block 2",
        "\
select block, cast(value as varchar) as balance from history('balance') where key = X'616c696365' and block >= 2",
    ),
    (
        "what each block since 2 did to whom: block and key choose what is read",
        "\
select block, cast(key as varchar) as account, cast(before as varchar) as was, cast(after as varchar) as is_now
from changes('balance') where block >= 2 and key < X'63' order by block limit 3",
    ),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let context = SessionContext::new();
    match &arguments[..] {
        [] => {
            let place = std::env::temp_dir().join(format!("query-{}.ice", std::process::id()));
            let archive = sample(&place)?;
            icecore_datafusion::register(&context, archive.reader().clone());
            for (question, sql) in QUESTIONS {
                println!("{question}:\n{sql}");
                context.sql(sql).await?.show().await?;
            }
            archive.close()?;
            std::fs::remove_dir_all(&place)?;
        }
        [option, key, place, questions @ ..] if option == "--pubkey" => {
            let options = BucketOptions::new().public_key(key.parse()?);
            answer(&context, open(place, &options)?, questions).await?;
        }
        [place, questions @ ..] => answer(&context, open(place, &BucketOptions::new())?, questions).await?,
    }
    Ok(())
}

/// The archive in a directory, or at a URL.
fn open(place: &str, options: &BucketOptions) -> Result<Reader, icecore::Error> {
    if place.contains("://") {
        return Reader::open_remote(
            &Bucket::open_with(place, options)?,
            &RemoteOptions::new(default_cache()),
        );
    }
    Reader::open(place)
}

async fn answer(
    context: &SessionContext,
    reader: Reader,
    questions: &[String],
) -> Result<(), Box<dyn Error>> {
    icecore_datafusion::register(context, reader);
    for sql in questions {
        context.sql(sql).await?.show().await?;
    }
    Ok(())
}

fn sample(place: &Path) -> Result<Archive, icecore::Error> {
    let archive = Archive::create(place, Options::new().domain("balance"))?;
    let blocks: [&[(&str, Option<&str>)]; 3] = [
        &[("alice", Some("100")), ("bob", Some("7")), ("anna", Some("1"))],
        &[("alice", Some("80")), ("carol", Some("20"))],
        &[("alice", Some("60")), ("bob", None), ("carol", Some("40"))],
    ];
    for (height, changes) in (1..).zip(blocks) {
        let mut block = archive.begin(height)?;
        for (account, balance) in changes {
            match balance {
                Some(balance) => block.put("balance", account.as_bytes(), balance.as_bytes())?,
                None => block.delete("balance", account.as_bytes())?,
            }
        }
        block.commit()?;
    }
    Ok(archive)
}
