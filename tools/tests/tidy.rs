//! The rules of the repository, as tests: what a reviewer would otherwise have to look for in every change.
//!
//! Each rule prints every place that breaks it, as `path:line: what`. The exceptions stand in tables at the top, each
//! with its reason; a rule that is wrong is changed there, not worked around where it strikes.
//!
//! Longer than other files because the small lexer that the rules need stands with them, and a test is one file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// What the top level holds, and nothing else but dotfiles and what `.gitignore` names.
const TOP_LEVEL: &[&str] = &[
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "cli",
    "engine",
    "hot",
    "index",
    "segments",
    "tools",
];

/// Which crates of the workspace a crate may depend on. The floors know nothing above them; `cli`, `tools` and `benches`
/// are leaves, but for one edge: the workloads of the benches are those of the tools, and `tools` is their home.
const EDGES: &[(&str, &[&str])] = &[
    ("icecore-hot", &[]),
    ("icecore-segments", &[]),
    ("icecore-index", &["icecore-segments"]),
    ("icecore", &["icecore-hot", "icecore-index", "icecore-segments"]),
    ("icecore-cli", &["icecore"]),
    ("icecore-tools", &["icecore", "icecore-hot", "icecore-index", "icecore-segments"]),
    ("icecore-benches", &["icecore", "icecore-hot", "icecore-index", "icecore-segments", "icecore-tools"]),
];

/// What tests alone depend on: those of the command need a server that speaks S3, which is with the tools.
const TEST_EDGES: &[(&str, &str)] = &[("icecore-cli", "icecore-tools")];

/// What `index` may name of `segments`: the vocabulary, never the reader. `Error` is `error::Error` by its short name, `FileBytes`
/// what both read from;
/// `format_doc` serves its tests.
const VOCABULARY: &[&str] =
    &["Error", "FileBytes", "bytes", "checksum", "error", "format_doc", "frame", "span", "step"];

/// The storeys of the engine, from the ground up: a file names what stands in its own folder or below. The modules of the
/// public face that are not named here stand on top of all.
const STOREYS: &[&str] = &[
    "error_kind",
    "remote_error",
    "commitment",
    "operation",
    "error_text",
    "error",
    "progress",
    "steps",
    "domain",
    "options",
    "open_options",
    "handle",
    "storage",
    "wal",
    "manifest",
    "format",
    "stats",
    "inspect",
    "segment",
    "memtable",
    "read",
    "measure",
    "merkle",
    "write",
    "maintain",
    "remote",
    "view",
    "reader",
    "reader_changes",
    "reader_remote",
    "reader_source",
    "block",
    "ethereum",
    "archive",
    "archive_rows",
    "lib",
];

/// Where a type has methods outside the folder that defines it, as (folder, type, reason).
const METHODS_ELSEWHERE: &[(&str, &str, &str)] =
    &[("engine/src/read", "LiveSegment", "the steps of a lookup inside one segment")];

/// The files with unsafe code: the mapping, the arena, the lanes of each kind of CPU, and the residency check of the tools.
const UNSAFE_FILES: &[&str] = &[
    "engine/src/storage/map.rs",
    "hot/src/memory/arena.rs",
    "hot/src/hash/simd/keccak/neon.rs",
    "hot/src/hash/simd/keccak/x86.rs",
    "hot/src/hash/simd/neon.rs",
    "hot/src/hash/simd/x86.rs",
    "tools/src/measure/evict.rs",
];

/// The attribute on unsafe code that the root of each crate carries.
const UNSAFE_ATTRIBUTES: &[(&str, &str)] = &[
    ("benches/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("cli/src/main.rs", "#![forbid(unsafe_code)]"),
    ("engine/src/lib.rs", "#![deny(unsafe_code)]"),
    ("hot/src/lib.rs", "#![deny(unsafe_code)]"),
    ("index/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("segments/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("tools/datafusion/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("tools/python/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("tools/src/lib.rs", "#![deny(unsafe_code)]"),
];

/// The document with the map of the code.
const MAP: &str = ".github/CONTRIBUTING.md";

/// Names that say nothing about what a file is for.
const DRAWERS: &[&str] = &["common", "helper", "helpers", "misc", "types", "util", "utils"];

/// Words that other words took the place of, as (retired, standard), so that a concept keeps one name. Whole words, in sources and
/// documents; the changelog speaks of what was.
const RETIRED: &[(&str, &str)] = &[
    ("Ahead", "PrefetchHint"),
    ("Changed", "DirtyKeys"),
    ("Core", "Writer"),
    ("Crew", "WorkerPool"),
    ("FileChange", "VersionEdit"),
    ("Levels", "DirtyNodes"),
    ("Owner", "LeafPreimage"),
    ("StepTable", "StepMemtable"),
    ("Tile", "BucketHasher"),
    ("advise_fetch", "will_need"),
    ("ask_ahead", "prefetch"),
    ("border", "boundary"),
    ("check_rising", "check_next"),
    ("is_in_line", "matches_policy"),
    ("pace", "on_progress"),
    ("report_to", "set_progress_listener"),
    ("so-and-so", "a number, or nothing"),
];

/// Code that is not finished, or hides that it is not.
const UNFINISHED: &[&str] =
    &["#[ignore", "#[should_panic", "dbg!(", "todo!(", "unimplemented!(", "TODO", "FIXME"];

/// Where a crate without files, clocks and networks would have one.
const OUTSIDE_WORLD: &[&str] = &["std::fs", "std::net", "Instant::now", "SystemTime", "std::env::"];

/// A function longer than this is named by `functions_are_short`; one longer than the second number fails it.
const FUNCTION_LINES: (usize, usize) = (70, 100);

/// Functions that may be longer, as (file, function, reason).
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// The most lines of a file, unit tests at its foot not counted.
const FILE_LINES: usize = 500;

/// Files that may be longer, as (file, reason).
const LONG_FILES: &[(&str, &str)] = &[];

// ---------------------------------------------------------------------------------------------------------------------
// What is looked at
// ---------------------------------------------------------------------------------------------------------------------

/// One line of Rust, taken apart.
#[derive(Default)]
struct Line {
    /// The line without comments and without what stands between quotes.
    code: String,
    /// The text of a comment that is not documentation.
    comment: String,
    /// Whether it belongs to a test.
    test: bool,
}

struct Source {
    path: String,
    text: String,
    lines: Vec<Line>,
}

struct Repository {
    root: PathBuf,
    /// All files that are not ignored, relative to the root, with `/`, sorted.
    files: Vec<String>,
    sources: Vec<Source>,
}

fn repository() -> &'static Repository {
    static REPOSITORY: OnceLock<Repository> = OnceLock::new();
    REPOSITORY.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the package lies in the workspace")
            .to_owned();
        let mut files = Vec::new();
        walk(&root, "", &mut files);
        files.sort();
        let rust = files.iter().filter(|path| extension(path) == Some("rs"));
        let sources = rust
            .map(|path| Source::parse(path, fs::read_to_string(root.join(path)).expect("a source is UTF-8")))
            .collect();
        Repository { root, files, sources }
    })
}

fn walk(root: &Path, folder: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder can be listed") {
        let entry = entry.expect("a folder can be listed");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name == ".git" || is_ignored(root, &path) {
            continue;
        }
        if entry.file_type().expect("an entry has a type").is_dir() {
            walk(root, &path, files);
        } else {
            files.push(path);
        }
    }
}

/// Whether `.gitignore` names the path: as a whole with a leading `/`, or by its last part without.
fn is_ignored(root: &Path, path: &str) -> bool {
    static PATTERNS: OnceLock<Vec<String>> = OnceLock::new();
    let read = || {
        let text = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        text.lines()
            .map(|line| line.trim_end_matches('/').to_owned())
            .filter(|line| !line.is_empty())
            .collect()
    };
    PATTERNS.get_or_init(read).iter().any(|pattern| match pattern.strip_prefix('/') {
        Some(whole) => path == whole,
        None => path.rsplit('/').next() == Some(pattern),
    })
}

impl Source {
    fn parse(path: &str, text: String) -> Self {
        let mut lines = lex(&text);
        let whole = path.split('/').any(|part| {
            matches!(part, "tests" | "benches" | "examples" | "tests.rs") || part.ends_with("_tests.rs")
        });
        // `benches/` at the top is a crate like the others.
        if whole && !path.starts_with("benches/src/") {
            for line in &mut lines {
                line.test = true;
            }
        }
        mark_test_modules(&mut lines);
        Self { path: path.to_owned(), text, lines }
    }

    /// The lines of the code proper with their numbers.
    fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        (1..).zip(&self.lines).filter(|(_, line)| !line.test)
    }
}

/// Takes Rust apart into code, comments and quoted text. Knows strings, raw strings, characters, nested comments.
fn lex(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut i = 0;
    while i < chars.len() {
        let rest = &chars[i..];
        let line = lines.last_mut().expect("there is always a line");
        let end = match rest {
            ['\n', ..] => {
                lines.push(Line::default());
                i + 1
            }
            ['/', '/', ..] => {
                let end = i + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
                if !matches!(rest, ['/', '/', '/' | '!', ..]) {
                    line.comment = chars[i + 2..end].iter().collect();
                }
                end
            }
            ['/', '*', ..] => skip(&mut lines, &chars, i, block_comment_end(&chars, i)),
            ['"', ..] => skip(&mut lines, &chars, i, string_end(&chars, i)),
            ['r', '"' | '#', ..] if is_raw_string(&chars, i) => {
                skip(&mut lines, &chars, i, raw_string_end(&chars, i))
            }
            ['\'', '\\', _, more @ ..] => i + 4 + more.iter().position(|c| *c == '\'').unwrap_or(0),
            ['\'', _, '\'', ..] => i + 3,
            [other, ..] => {
                line.code.push(*other);
                i + 1
            }
            [] => unreachable!("the loop ends before the text does"),
        };
        i = end;
    }
    lines
}

/// Passes over `from..to`, which leaves only its line ends and a mark that there was something.
fn skip(lines: &mut Vec<Line>, chars: &[char], from: usize, to: usize) -> usize {
    lines.last_mut().expect("there is always a line").code.push('"');
    chars[from..to].iter().filter(|c| **c == '\n').for_each(|_| lines.push(Line::default()));
    to
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut i) = (0, from);
    while i < chars.len() {
        match &chars[i..] {
            ['/', '*', ..] => (depth, i) = (depth + 1, i + 2),
            ['*', '/', ..] if depth == 1 => return i + 2,
            ['*', '/', ..] => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    i
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn is_raw_string(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).map_or(' ', |i| chars[i]);
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (!is_word(before) || matches!(before, 'b' | 'c')) && chars.get(at + 1 + hashes) == Some(&'"')
}

fn raw_string_end(chars: &[char], from: usize) -> usize {
    let hashes = chars[from + 1..].iter().take_while(|c| **c == '#').count();
    let body = from + 2 + hashes;
    let closes = |i: &usize| {
        chars[*i] == '"' && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (body..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The places where `word` stands on its own.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back().is_some_and(is_word);
        let after = code[at + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// The line on which the braces that open at or after (`line`, `column`) close; `None` where a `;` comes first.
fn body_end(lines: &[Line], line: usize, column: usize) -> Option<usize> {
    let (mut round, mut curly) = (0i32, 0i32);
    for (i, row) in lines.iter().enumerate().skip(line) {
        for c in row.code[if i == line { column } else { 0 }..].chars() {
            match c {
                '(' | '[' => round += 1,
                ')' | ']' => round -= 1,
                '{' => curly += 1,
                '}' if curly == 1 => return Some(i),
                '}' => curly -= 1,
                ';' if curly == 0 && round == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

fn mark_test_modules(lines: &mut [Line]) {
    for i in 0..lines.len() {
        if lines[i].code.trim() == "#[cfg(test)]"
            && let Some(end) = body_end(lines, i + 1, 0)
        {
            lines[i..=end].iter_mut().for_each(|line| line.test = true);
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().root.join(path)).expect("a source is text")
}

fn extension(path: &str) -> Option<&str> {
    Path::new(path).extension().map(|extension| extension.to_str().expect("names are UTF-8"))
}

fn metadata(manifest: &Path) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"];
    let output = Command::new(cargo).args(arguments).arg(manifest).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn workspace() -> &'static Value {
    static WORKSPACE: OnceLock<Value> = OnceLock::new();
    WORKSPACE.get_or_init(|| metadata(&repository().root.join("Cargo.toml")))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// Fails with every place that breaks a rule.
fn expect_none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}, broken in {} places:\n{}", broken.len(), broken.join("\n"));
}

// ---------------------------------------------------------------------------------------------------------------------
// The rules
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn the_top_level_is_as_promised() {
    let visible = repository().files.iter().map(|path| path.split('/').next().unwrap());
    let found: BTreeSet<&str> = visible.filter(|name| !name.starts_with('.')).collect();
    let promised: BTreeSet<&str> = TOP_LEVEL.iter().copied().collect();
    let broken: Vec<String> = found.symmetric_difference(&promised).map(|name| (*name).to_owned()).collect();
    expect_none("the top level holds what it promises and nothing else", &broken);
}

#[test]
fn crates_depend_downwards_only() {
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    let mut broken = Vec::new();
    for package in list(workspace(), "packages") {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = allowed.get(name) else {
            broken.push(format!("{name}: not in the table of edges"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let (on, is_of_tests) = (dependency["name"].as_str().unwrap(), dependency["kind"] == "dev");
            let is_allowed = allowed.contains(&on) || (is_of_tests && TEST_EDGES.contains(&(name, on)));
            if on.starts_with("icecore") && on != name && !is_allowed {
                broken.push(format!("{name} -> {on}"));
            }
        }
    }
    expect_none("crates depend only on those below them", &broken);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests =
        list(workspace(), "packages").iter().map(|package| package["manifest_path"].as_str().unwrap());
    let lax =
        manifests.filter(|path| !fs::read_to_string(path).unwrap().contains("[lints]\nworkspace = true\n"));
    expect_none("each manifest has `[lints] workspace = true`", &lax.map(str::to_owned).collect::<Vec<_>>());
}

/// The paths below `crate::` that the lines of a file name outside its tests, as deep as there is a file for them.
fn named_modules(source: &Source, modules: &BTreeMap<String, &Source>) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for line in source.lines.iter().filter(|line| !line.test) {
        for (at, _) in line.code.match_indices("crate::") {
            if line.code[..at].ends_with("pub(")
                || line.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
            {
                continue;
            }
            let path: Vec<&str> = line.code[at + "crate::".len()..]
                .split("::")
                .map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
                .collect();
            let deepest =
                (1..=path.len()).rev().map(|len| path[..len].join("::")).find(|m| modules.contains_key(m));
            named.extend(deepest);
        }
    }
    named
}

/// The files of a crate by module path: `read::get`, `lib`.
fn modules_of<'r>(folder: &str) -> BTreeMap<String, &'r Source> {
    let sources = repository().sources.iter();
    let of_crate =
        sources.filter_map(|source| Some((source.path.strip_prefix(folder)?.strip_suffix(".rs")?, source)));
    let is_code =
        |path: &str| !path.starts_with("testing") && !path.ends_with("tests") && !path.starts_with("bin/");
    of_crate
        .filter(|(path, _)| is_code(path))
        .map(|(path, source)| (path.trim_end_matches("/mod").replace('/', "::"), source))
        .collect()
}

#[test]
fn the_storeys_of_the_engine_lean_on_those_below() {
    let modules = modules_of("engine/src/");
    assert!(modules.len() > 40, "the engine has more files than {}", modules.len());
    let storey = |module: &str| {
        let name = module.split("::").next().unwrap_or(module);
        STOREYS.iter().position(|storey| *storey == name)
    };
    let mut broken = Vec::new();
    for (module, source) in &modules {
        let Some(own) = storey(module) else {
            broken.push(format!("{}: has no storey", source.path));
            continue;
        };
        for named in named_modules(source, &modules) {
            if storey(&named).is_none_or(|of| of > own) {
                broken.push(format!("{}: names crate::{named}, which stands above it", source.path));
            }
        }
    }
    expect_none("a folder leans on those below it", &broken);
}

#[test]
fn no_files_name_each_other_in_a_circle() {
    let mut broken = Vec::new();
    for folder in ["hot/src/", "segments/src/", "index/src/", "engine/src/", "cli/src/", "tools/src/"] {
        let modules = modules_of(folder);
        let named: BTreeMap<&str, BTreeSet<String>> = modules
            .iter()
            .map(|(module, source)| (module.as_str(), named_modules(source, &modules)))
            .collect();
        for module in named.keys() {
            let mut reached: BTreeSet<&str> = BTreeSet::new();
            let mut open: Vec<&str> = vec![module];
            while let Some(next) = open.pop() {
                for below in named[next].iter().filter(|below| below.as_str() != next) {
                    if reached.insert(below) {
                        open.push(below);
                    }
                }
            }
            if reached.contains(module) {
                broken.push(format!("{folder}{module}: is part of a circle"));
            }
        }
    }
    expect_none("files form no circle", &broken);
}

#[test]
fn methods_stand_in_the_folder_of_their_type() {
    let (mut broken, mut used) = (Vec::new(), BTreeSet::new());
    for crate_folder in ["hot/src/", "segments/src/", "index/src/", "engine/src/"] {
        let sources = repository().sources.iter().filter(|source| source.path.starts_with(crate_folder));
        let mut defined: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (source, (_, line)) in
            sources.clone().flat_map(|source| source.shipped().map(move |line| (source, line)))
        {
            for at in
                ["struct", "enum"].iter().flat_map(|word| words(&line.code, word).map(|at| at + word.len()))
            {
                defined.entry(first_word(&line.code[at..])).or_default().insert(folder_of(&source.path));
            }
        }
        for source in sources {
            let code: Vec<(usize, &str)> =
                source.shipped().map(|(number, line)| (number, line.code.as_str())).collect();
            for (at, (number, _)) in code.iter().enumerate().filter(|(_, (_, code))| code.starts_with("impl"))
            {
                let header: Vec<&str> = code[at..].iter().take(12).map(|(_, code)| code.as_ref()).collect();
                let header = header.join(" ");
                let Some(name) = inherent_type(&header) else { continue };
                let folder = folder_of(&source.path);
                if defined.get(&name).is_none_or(|folders| folders.contains(folder)) {
                    continue;
                }
                if METHODS_ELSEWHERE.iter().any(|(place, of, _)| *place == folder && *of == name) {
                    used.insert((folder, name));
                } else {
                    broken.push(format!("{}:{number}: impl {name}", source.path));
                }
            }
        }
    }
    let unused =
        METHODS_ELSEWHERE.iter().filter(|(place, of, _)| !used.contains(&(*place, (*of).to_owned())));
    broken.extend(unused.map(|(place, of, _)| format!("{place}: no impl {of} any more")));
    expect_none("methods stand in the folder that defines their type", &broken);
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The type whose methods an `impl` block has; `None` for those of a trait.
fn inherent_type(header: &str) -> Option<String> {
    let header = header.strip_prefix("impl")?.split('{').next()?.replace("->", "");
    let header = header.split(" where ").next()?.trim_start();
    let mut depth = 0;
    let generics = header.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    let path = if header.starts_with('<') { &header[generics? + 1..] } else { header };
    let is_of_trait = words(path, "for").next().is_some();
    let path = path.split('<').next()?;
    (!is_of_trait).then(|| first_word(path.rsplit("::").next().unwrap_or(path)))
}

#[test]
fn the_index_sees_the_vocabulary_of_segments_only() {
    let mut broken = Vec::new();
    for source in repository().sources.iter().filter(|source| source.path.starts_with("index/src/")) {
        let code: String = source.lines.iter().flat_map(|line| [line.code.as_str(), "\n"]).collect();
        for at in words(&code, "icecore_segments") {
            let Some(tail) = code[at..].strip_prefix("icecore_segments::") else {
                broken.push(format!("{}: names the crate as a whole", source.path));
                continue;
            };
            let names = tail.strip_prefix('{').map_or_else(|| vec![first_word(tail)], group_heads);
            let foreign = names.into_iter().filter(|name| !VOCABULARY.contains(&name.as_str()));
            broken.extend(foreign.map(|name| format!("{}: icecore_segments::{name}", source.path)));
        }
    }
    expect_none("index imports only the vocabulary of segments", &broken);
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| is_word(*c)).collect()
}

/// The first name of each path in `a::b, c::{d, e}}`, up to the brace that closes the group.
fn group_heads(text: &str) -> Vec<String> {
    let (mut heads, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                heads.push(first_word(&text[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

#[test]
fn the_floors_do_no_input_and_output() {
    let mut broken = Vec::new();
    for source in &repository().sources {
        let floor =
            ["hot/src/", "segments/src/", "index/src/"].iter().any(|floor| source.path.starts_with(floor));
        let engine =
            source.path.starts_with("engine/src/") && !source.path.starts_with("engine/src/storage/");
        let banned = if floor { OUTSIDE_WORLD } else { &OUTSIDE_WORLD[..2] };
        for (number, line) in source.shipped().filter(|_| floor || engine) {
            let found = banned.iter().find(|what| line.code.contains(**what));
            broken.extend(found.map(|what| format!("{}:{number}: {what}", source.path)));
        }
    }
    expect_none("only engine/src/storage touches files; the floors have no clock either", &broken);
}

#[test]
fn unsafe_code_has_seven_addresses() {
    let mut broken = Vec::new();
    for source in repository().sources.iter().filter(|source| !UNSAFE_FILES.contains(&source.path.as_str())) {
        let found = (1..).zip(&source.lines).filter(|(_, line)| words(&line.code, "unsafe").next().is_some());
        broken.extend(found.map(|(number, _)| format!("{}:{number}: unsafe", source.path)));
    }
    for (path, attribute) in UNSAFE_ATTRIBUTES {
        let source = repository().sources.iter().find(|source| source.path == *path);
        if !source.is_some_and(|source| source.text.lines().any(|line| line == *attribute)) {
            broken.push(format!("{path}: no {attribute}"));
        }
    }
    expect_none("unsafe code stands in the files named for it", &broken);
}

#[test]
fn every_file_says_what_it_is() {
    let headless = |source: &&Source| {
        let doc = source.text.starts_with("//! ") || source.text.starts_with("#![doc = include_str!");
        !doc || source.text.starts_with("//! Placeholder")
    };
    let broken: Vec<String> =
        repository().sources.iter().filter(headless).map(|source| source.path.clone()).collect();
    expect_none("each .rs file opens with a //! head", &broken);
}

#[test]
fn no_file_is_a_drawer() {
    let drawer = |path: &&String| path.trim_end_matches(".rs").split('/').any(|part| DRAWERS.contains(&part));
    let broken: Vec<String> = repository().files.iter().filter(drawer).cloned().collect();
    expect_none("no file or folder is named after nothing", &broken);
}

#[test]
fn every_file_is_compiled() {
    let repository = repository();
    let mut reached = BTreeSet::new();
    let manifests = repository.files.iter().filter(|path| path.rsplit('/').next() == Some("Cargo.toml"));
    let members: Vec<&str> =
        list(workspace(), "packages").iter().filter_map(|p| p["manifest_path"].as_str()).collect();
    let outside = manifests.map(|path| repository.root.join(path)).filter(|path| {
        *path != repository.root.join("Cargo.toml") && !members.contains(&path.to_str().unwrap())
    });
    let outside: Vec<Value> = outside.map(|path| metadata(&path)).collect();
    for package in outside.iter().chain([workspace()]).flat_map(|workspace| list(workspace, "packages")) {
        for target in list(package, "targets") {
            let root =
                Path::new(target["src_path"].as_str().unwrap()).strip_prefix(&repository.root).unwrap();
            reach(root, true, &mut reached);
        }
    }
    let orphans = repository.sources.iter().filter(|source| !reached.contains(Path::new(&source.path)));
    expect_none(
        "each .rs file is a module of some target",
        &orphans.map(|s| s.path.clone()).collect::<Vec<_>>(),
    );
}

/// Follows the `mod name;` of a file. Those of a root or a `mod.rs` lie beside it, others in a folder of its name.
fn reach(path: &Path, root: bool, reached: &mut BTreeSet<PathBuf>) {
    if !reached.insert(path.to_owned()) {
        return;
    }
    let Some(source) = repository().sources.iter().find(|source| Path::new(&source.path) == path) else {
        return;
    };
    let beside = root || path.file_name().is_some_and(|name| name == "mod.rs");
    let folder =
        if beside { path.parent().expect("a file has a folder").to_owned() } else { path.with_extension("") };
    let mut before = "";
    for (line, text) in source.lines.iter().zip(source.text.lines()) {
        if let Some((_, name)) = line.code.trim().strip_suffix(';').and_then(|code| code.rsplit_once("mod "))
        {
            let named = before.trim().strip_prefix("#[path = \"").and_then(|path| path.strip_suffix("\"]"));
            let named = named.map(|file| path.with_file_name(file));
            for file in
                [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")].into_iter().chain(named)
            {
                if repository().root.join(&file).exists() {
                    reach(&file, false, reached);
                }
            }
        }
        before = text;
    }
}

#[test]
fn nothing_is_left_unfinished_or_commented_out() {
    let mut broken = Vec::new();
    for source in &repository().sources {
        for (number, line) in (1..).zip(&source.lines) {
            let found =
                UNFINISHED.iter().find(|what| line.code.contains(**what) || line.comment.contains(**what));
            broken.extend(found.map(|what| format!("{}:{number}: {what}", source.path)));
            if looks_like_code(line.comment.trim()) {
                broken.push(format!("{}:{number}: code in a comment: {}", source.path, line.comment.trim()));
            }
        }
    }
    expect_none("no unfinished and no commented-out code", &broken);
}

/// A comment that ends like a statement and has the signs of one. Prose ends so too now and then, but without the signs.
fn looks_like_code(comment: &str) -> bool {
    // Prose may quote code.
    let comment: String = comment.split('`').step_by(2).collect();
    let keyword = ["let ", "fn ", "pub ", "use ", "mod ", "impl ", "return ", "#[", "assert"];
    let begins = keyword.iter().any(|word| comment.starts_with(word));
    let signs = [" = ", "::", "->", "()", "();", ").", "!("].iter().any(|sign| comment.contains(sign));
    let ends = comment.ends_with([';', '{']) || comment.ends_with(")]") || comment == "}";
    ends && (begins || signs || comment == "}")
}

#[test]
fn sources_are_ascii() {
    let mut broken = Vec::new();
    for path in repository().files.iter().filter(|path| matches!(extension(path), Some("rs" | "toml"))) {
        let text = read(path);
        let found = (1..).zip(text.lines()).find(|(_, line)| !line.is_ascii());
        broken.extend(found.map(|(number, line)| format!("{path}:{number}: {line}")));
    }
    expect_none(".rs and .toml files are ASCII", &broken);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let folders = ["work", "tmp", "home", "root"];
    let extensions = [None, Some("rs"), Some("toml"), Some("md"), Some("sh"), Some("yml"), Some("html")];
    let mut broken = Vec::new();
    for path in &repository().files {
        if !extensions.contains(&extension(path)) {
            continue;
        }
        let Ok(text) = fs::read_to_string(repository().root.join(path)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let found = folders.iter().any(|folder| names_folder(line, &format!("/{folder}")));
            broken.extend(found.then(|| format!("{path}:{number}: {line}")));
        }
    }
    expect_none("no path of a certain machine", &broken);
}

/// A path between backquotes that begins with a folder of the top level. The changelog speaks of what was.
#[test]
fn documents_name_files_that_exist() {
    let folders = |path: &str| {
        let first = path.split('/').next().unwrap_or(path);
        path.contains('/') && (first == ".github" || TOP_LEVEL.contains(&first))
    };
    let is_path = |quoted: &&str| quoted.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c));
    let mut broken = Vec::new();
    for path in
        repository().files.iter().filter(|path| extension(path) == Some("md") && *path != "CHANGELOG.md")
    {
        for (number, line) in (1..).zip(read(path).lines()) {
            let quoted = line.split('`').skip(1).step_by(2).filter(is_path).filter(|quoted| folders(quoted));
            let gone = quoted.filter(|quoted| !repository().root.join(quoted).exists());
            broken.extend(gone.map(|quoted| format!("{path}:{number}: {quoted}")));
        }
    }
    expect_none("a document names files that exist", &broken);
}

/// Whoever changes the code finds every folder of the library, and of the floors, in the map.
#[test]
fn the_map_names_every_folder() {
    let map = read(MAP);
    let named: BTreeSet<&str> =
        map.split('`').skip(1).step_by(2).map(|path| path.trim_end_matches('/')).collect();
    let folders: BTreeSet<&str> = repository()
        .files
        .iter()
        .filter_map(|path| path.rsplit_once('/').map(|(folder, _)| folder))
        .filter(|folder| {
            let parts: Vec<&str> = folder.split('/').collect();
            matches!(
                parts[..],
                ["engine" | "hot" | "index" | "segments", "src"] | ["engine" | "hot" | "index", "src", _]
            )
        })
        .collect();
    assert!(20 < folders.len(), "{folders:?}");
    let missing: Vec<String> =
        folders.difference(&named).map(|folder| format!("{MAP}: no {folder}/")).collect();
    expect_none("the map names every folder", &missing);
}

#[test]
fn retired_words_stay_away() {
    let mut broken = Vec::new();
    for path in &repository().files {
        let is_prose = matches!(extension(path), Some("rs" | "md" | "toml")) && path != "CHANGELOG.md";
        if !is_prose || path == "tools/tests/tidy.rs" {
            continue;
        }
        for (number, line) in (1..).zip(read(path).lines()) {
            let found = RETIRED.iter().filter(|(retired, _)| words(line, retired).next().is_some());
            broken.extend(found.map(|(retired, standard)| {
                format!("{path}:{number}: {retired} is {standard} now: {}", line.trim())
            }));
        }
    }
    expect_none("a retired word does not come back", &broken);
}

fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back().unwrap_or(' ');
        let after = line[at + folder.len()..].chars().next().unwrap_or(' ');
        !is_word(before) && !"-./<}>)*".contains(before) && !is_word(after) && after != '-'
    })
}

#[test]
fn functions_are_short() {
    let mut broken = Vec::new();
    for source in &repository().sources {
        for (i, line) in source.lines.iter().enumerate() {
            for at in words(&line.code, "fn") {
                let name = first_word(&line.code[at + 2..]);
                let Some(end) = body_end(&source.lines, i, at).filter(|_| !name.is_empty()) else { continue };
                let place = format!("{}:{}: {name} has {} lines", source.path, i + 1, end - i + 1);
                let excused =
                    LONG_FUNCTIONS.iter().any(|(path, long, _)| *path == source.path && *long == name);
                if end - i + 1 > FUNCTION_LINES.1 && !excused {
                    broken.push(place);
                } else if end - i + 1 > FUNCTION_LINES.0 {
                    println!("{place}");
                }
            }
        }
    }
    expect_none("a function has about 70 lines at most", &broken);
}

#[test]
fn files_are_short() {
    let mut broken = Vec::new();
    for source in &repository().sources {
        let lines = source.shipped().count();
        if lines > FILE_LINES && !LONG_FILES.iter().any(|(path, _)| *path == source.path) {
            broken.push(format!("{}: {lines} lines", source.path));
        }
    }
    expect_none("a file has about 500 lines at most", &broken);
}

#[test]
fn exceptions_are_still_needed() {
    let exists = |path: &str| repository().files.iter().any(|file| file == path);
    let functions = LONG_FUNCTIONS.iter().map(|(path, ..)| *path);
    let named = UNSAFE_FILES.iter().copied().chain(functions).chain(LONG_FILES.iter().map(|(path, _)| *path));
    let gone: Vec<String> = named.filter(|path| !exists(path)).map(str::to_owned).collect();
    expect_none("an exception names a file that exists", &gone);
}

#[test]
fn the_rules_see_what_they_should() {
    let text = "fn a() { \"unsafe {\" } // let x = f();\n/* unsafe { */ let c = '{'; let s = r#\"}\"#; fn b<'a>() {\n}\n";
    let lines = lex(text);
    assert_eq!(lines[0].code, "fn a() { \" } ");
    assert!(looks_like_code(lines[0].comment.trim()) && !looks_like_code("ends like this, and goes on;"));
    assert!(
        !lines[1].code.contains("unsafe") && lines[1].code.matches('{').count() == 1,
        "{}",
        lines[1].code
    );
    assert_eq!(body_end(&lines, 1, lines[1].code.find("fn").unwrap()), Some(2));
    assert_eq!(group_heads("frame::{A, B}, step, page::Page};"), ["frame", "step", "page"]);
    assert_eq!(
        inherent_type("impl<'a, F: Fn(&A) -> B> read::View<'a, F> where F: Send {").as_deref(),
        Some("View")
    );
    assert_eq!(inherent_type("impl<T> Drop for Held<T> {"), None);
    let folder = ["/", "work"].concat();
    assert!(names_folder(&format!("see {folder}/main"), &folder) && !names_folder("a/work b", &folder));
}
