//! README is carried out as a newcomer would: its shell blocks in order, in one folder, and what they print is compared with the
//! block below.

use std::path::Path;
use std::process::Command;

use crate::driver::Place;

/// Blocks of shell that print nothing have no output below.
struct Block {
    line: usize,
    script: String,
    printed: String,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is part of a workspace")
}

/// The blocks of shell, each with the block of text that follows it with nothing but an empty line in between.
fn shell_blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    let mut is_output_next = false;
    while let Some((line, text)) = lines.next() {
        let Some(language) = text.strip_prefix("```") else {
            is_output_next &= text.is_empty();
            continue;
        };
        let body = lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```");
        let body: String = body.flat_map(|text| [text, "\n"]).collect();
        match language {
            "sh" => found.push(Block { line, script: body, printed: String::new() }),
            "text" if is_output_next => found.last_mut().unwrap().printed = body,
            _ => {}
        }
        is_output_next = language == "sh";
    }
    found
}

/// What differs from run to run: `in 0.03 s (156 changes/s)`.
fn without_times(printed: &str) -> String {
    let line = |line: &str| match line.split_once(" in ") {
        Some((done, time)) if time.ends_with(" changes/s)") => format!("{done}\n"),
        _ => format!("{line}\n"),
    };
    printed.lines().map(line).collect()
}

/// What stands for `cargo` while README is carried out. Building takes minutes and this test is part of one of the commands, so
/// those become what can be said at once: that the package is there, and the command that it builds runs.
const CARGO: &str = r#"
cargo() {
    case "$*" in
        "install --locked --path "*) grep -q '^name = "icecore' "$ROOT/$4/Cargo.toml" && test -e "$ROOT/$4/src/main.rs" ;;
        "add icecore --path ../icecore/"*)
            mkdir package && cd package && "$CARGO" init --quiet --vcs none --name newcomer &&
                "$CARGO" add --quiet --offline icecore --path "$ROOT/${4#../icecore/}" && cd .. ;;
        "run --release -p icecore-cli -- "*) shift 5 && icecore "$@" >demo.txt && grep -q '^All of it checked' demo.txt ;;
        "test --workspace") test -e "$ROOT/cli/tests/cli/readme.rs" ;;
        *) echo "the test of README does not know: cargo $*" >&2 && return 1 ;;
    esac
}
"#;

#[test]
fn every_command_of_the_readme_prints_what_it_says() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_icecore")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let place = Place::new();
    let blocks = shell_blocks(&readme);
    assert!(6 < blocks.len() && 3 < blocks.iter().filter(|block| !block.printed.is_empty()).count());
    for Block { line, script, printed } in blocks {
        let output = Command::new("bash")
            .args(["-c", &format!("set -euo pipefail\n{CARGO}\n{script}")])
            .current_dir(place.path(""))
            .env("PATH", &path)
            .env("ROOT", repository())
            .env("CARGO", env!("CARGO"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "README.md:{line}: {said}");
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(without_times(&out), without_times(&printed), "README.md:{line}: {said}");
    }
}
