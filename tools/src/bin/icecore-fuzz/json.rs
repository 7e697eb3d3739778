//! The target over what people give to the `icecore` command: JSON lines, traces, proofs. Each input is a run of the command.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::child;
use crate::tape::Tape;

/// The exit codes that `icecore --help` tells; a panic has another one.
const CODES: std::ops::RangeInclusive<i32> = 0..=7;

/// Inputs that the command takes, by format.
const INPUTS: [(&str, &str); 4] = [
    (
        "jsonl",
        "{\"block\":1,\"changes\":[{\"domain\":\"kv\",\"key\":\"alice\",\"value\":\"100\"},{\"domain\":\"kv\",\"key\":\"0x00ff\",\"value\":null}]}\n\
         {\"block\":2,\"changes\":[{\"domain\":\"kv\",\"key\":\"bob\",\"value\":\"0x01\"}]}\n",
    ),
    (
        "geth-diff",
        "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":[{\"txHash\":\"0x01\",\"result\":{\"pre\":{\"0x1111111111111111111111111111111111111111\":{\"balance\":\"0x10\",\"nonce\":1,\"storage\":{\"0x0000000000000000000000000000000000000000000000000000000000000001\":\"0x02\"}}},\
         \"post\":{\"0x1111111111111111111111111111111111111111\":{\"balance\":\"0x0f\",\"code\":\"0x6000\"}}}}]}\n",
    ),
    (
        "eth-changes",
        "{\"block\":1,\"balance\":{\"0x1111111111111111111111111111111111111111\":\"0x10\"},\"storage\":{\"0x1111111111111111111111111111111111111111\":{\"0x01\":\"0x02\"}}}\n",
    ),
    (
        "proof",
        "{\"domain\":\"kv\",\"key\":\"0x6b\",\"value\":\"0x76\",\"block\":1,\"root\":\"0x0101010101010101010101010101010101010101010101010101010101010101\",\"proof\":\"0x0a050a0100120101\"}\n",
    ),
];

pub(crate) fn json(tape: &mut Tape<'_>) -> Result<(), String> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(icecore) = child::icecore() else {
        if !TOLD.swap(true, Ordering::Relaxed) {
            println!(
                "json         skipped: there is no icecore beside this program (cargo build -p icecore-cli)"
            );
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        return Ok(());
    };
    let (format, text) = *tape.pick(&INPUTS);
    let mut bytes = text.as_bytes().to_vec();
    change(tape, &mut bytes);
    let tell = |error: std::io::Error| format!("cannot write the input: {error}");
    let dir = tempfile::tempdir().map_err(tell)?;
    let file = dir.path().join("input");
    std::fs::write(&file, &bytes).map_err(tell)?;
    let mut command = Command::new(icecore);
    if format == "proof" {
        command.arg("verify-proof").arg(&file);
    } else {
        command
            .args(["ingest", "--create"])
            .arg(dir.path().join("a.ice"))
            .arg(&file)
            .args(["--format", format]);
    }
    let status = child::run(&mut command)?;
    match status.code() {
        Some(code) if CODES.contains(&code) => Ok(()),
        _ => Err(format!("panicked: the command ended with {status}")),
    }
}

/// Changes bytes and tokens.
fn change(tape: &mut Tape<'_>, bytes: &mut Vec<u8>) {
    const TOKENS: [&str; 16] = [
        "null",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "\"\"",
        "\"0x\"",
        "\"0x0\"",
        "{}",
        "[]",
        "[[[[",
        "\"\\ud800\"",
        "true",
        "0.5",
        "\"latest\"",
        "\u{0}",
    ];
    for _ in 0..=tape.below(4) {
        let at = tape.below(bytes.len());
        match tape.below(6) {
            0 => tape.mutate(bytes),
            1 => drop(bytes.remove(at)),
            2 => {
                let end =
                    at + 1 + bytes[at + 1..].iter().position(|byte| b",:}]".contains(byte)).unwrap_or(0);
                bytes.splice(at..end, tape.pick(&TOKENS).bytes());
            }
            3 => drop(bytes.splice(at..at, tape.pick(&TOKENS).bytes())),
            4 => {
                let stretch =
                    bytes[at..(at + 1 + tape.below(30)).min(bytes.len())].repeat(1 + tape.below(5000));
                bytes.splice(at..at, stretch);
            }
            _ => bytes.truncate(at + 1),
        }
        if bytes.is_empty() {
            return;
        }
    }
}
