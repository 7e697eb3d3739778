//! The same against a server that others wrote, where it is installed: pushes that race, copies, reads in place.

use icecore::remote::{
    Accessors, Bucket, BucketOptions, PullOptions, PushOptions, RemoteError, RemoteOptions, pull, push,
};
use icecore::{Error, Reader};
use icecore_tools::gateway::{ACCESS_KEY, Gateway, SECRET_KEY};
use tempfile::TempDir;

use crate::chain::Chain;
use crate::pushers::{race, two_chains};

fn bucket(gateway: &Gateway, secret: &str) -> Bucket {
    let options = BucketOptions::new().endpoint(gateway.endpoint()).region("us-east-1");
    Bucket::open_with("s3://archives/chain", &options.credentials(ACCESS_KEY, secret, None)).unwrap()
}

#[test]
fn of_two_pushers_to_a_real_server_one_wins_each_of_100_races() {
    let Some(gateway) = Gateway::start("archives").unwrap() else { return };
    let dir = TempDir::new().unwrap();
    let told = race(&mut two_chains(dir.path(), 31), &bucket(&gateway, SECRET_KEY), 100);
    println!("{told} of 100 races were lost by one");
    assert!(told > 0, "no race was one");
}

#[test]
fn an_archive_on_a_real_server_answers_as_it_does_on_disk() {
    let Some(gateway) = Gateway::start("archives").unwrap() else { return };
    let dir = TempDir::new().unwrap();
    let chain = Chain::with_blocks(dir.path(), 32, 41);
    let bucket_of_owner = bucket(&gateway, SECRET_KEY);
    let sent = push(&chain.path, &bucket_of_owner, &PushOptions::new(), &()).unwrap();
    let copy = dir.path().join("copy.ice");
    pull(&bucket_of_owner, &copy, &PullOptions::new(), &()).unwrap();
    chain.check(&copy, sent.range);
    for (number, warm) in [Accessors::None, Accessors::All].into_iter().enumerate() {
        let cache = dir.path().join(format!("cache-{number}"));
        let reader = Reader::open_remote(&bucket_of_owner, &RemoteOptions::new(cache).warm(warm)).unwrap();
        chain.check_reader(&reader, sent.range);
    }
    let refused = push(&chain.path, &bucket(&gateway, "another secret"), &PushOptions::new(), &());
    assert!(matches!(refused, Err(Error::Remote(RemoteError::Denied { .. }))), "{refused:?}");
}
