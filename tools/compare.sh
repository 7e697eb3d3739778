#!/usr/bin/env bash
# Compares this checkout with another commit in one run on one machine: ingest, merge, lookups and roots, in turn, so that whatever else
# the machine does, it does to both. Says of each figure the median and the best of all rounds, and the cost of this checkout to that of
# the other: below 1 is faster. Fails where the two answer differently.
#
#   tools/compare.sh COMMIT [ROUNDS]
#
# BLOCKS (2000) blocks of 300 changes go in; ENTRIES (1000000) are in the segment of the lookups. What is built stays in target/compare,
# everything else is made in a folder of its own under TMPDIR and removed again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -lt 1 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
commit=$(git rev-parse --verify "$1^{commit}")
rounds=${2:-5}
blocks=${BLOCKS:-2000}
entries=${ENTRIES:-1000000}
temp=$(mktemp -d -t icecore-compare.XXXXXX)
trap 'rm -rf "$temp"' EXIT
results=$temp/results.tsv

say() { printf '==> [%s s] %s\n' "$SECONDS" "$*" >&2; }

# The sources of a commit without the bookkeeping of a worktree, so that nothing of it stays in the repository.
build() {
    local source=$1 target=$2
    (cd "$source" && cargo build --quiet --release --locked --target-dir "$target" -p icecore-cli -p icecore-tools)
}
say "building $commit"
mkdir "$temp/source"
git archive "$commit" | tar -x -C "$temp/source"
other=$PWD/target/compare/$commit
build "$temp/source" "$other"
say "building this checkout"
build . "$PWD/target"
declare -A bin=([other]=$other/release [this]=$PWD/target/release)

# One line of the results: which build, which figure, whether less or more of it is better, how much.
record() { printf '%s\t%s\t%s\t%s\n' "$side" "$1" "$2" "$3" >>"$results"; }

# Runs the command of this side and records the time that it took, of a processor and on the wall.
timed() {
    local name=$1 times
    shift
    exec 3>&1
    TIMEFORMAT='%R %U %S'
    times=$({ time "${bin[$side]}/$1" "${@:2}" >&3 2>"$temp/err"; } 2>&1) || { cat "$temp/err" >&2; return 1; }
    exec 3>&-
    record "$name: processor, s" less "$(awk '{ print $2 + $3 }' <<<"$times")"
    record "$name: wall, s" less "$(awk '{ print $1 }' <<<"$times")"
}

# Records figures that icecore-figures printed, by the beginnings of their lines.
figures() {
    local better=$1 name
    shift
    for name in "$@"; do
        record "$name" "$better" "$(awk -v name="$name" 'index($0, name "  ") == 1 { print $(split(name, words, " ") + 1); exit }' "$temp/figures")"
    done
}

say "making $blocks blocks"
"${bin[this]}/icecore-gen" blocks --blocks "$blocks" --changes 300 >"$temp/changes.jsonl"
sed -nE 's/^\{"block":([0-9]+),"domain":"storage","key":("[^"]*").*/{"get":{"domain":"storage","key":\2,"at":\1}}/p' \
    "$temp/changes.jsonl" | awk 'NR % 3 == 0' >"$temp/requests.jsonl"

round() {
    local dir=$temp/$side.ice answers=$temp/$side.answers
    rm -rf "$dir"
    timed "ingest, roots included" icecore ingest "$dir" "$temp/changes.jsonl" --format jsonl --create --sync relaxed --no-merge \
        --blocks-per-step 64 --domain accounts --domain code --domain storage >/dev/null
    timed "lookups in unmerged segments" icecore query "$dir" "$temp/requests.jsonl" >"$answers"
    timed "merge" icecore merge "$dir" >/dev/null
    timed "lookups in merged segments" icecore query "$dir" "$temp/requests.jsonl" >>"$answers"
    "${bin[$side]}/icecore" root "$dir" >>"$answers"
    "${bin[$side]}/icecore-figures" files --entries "$entries" --cold-keys 50 --unknown-keys 20000 --dir "$temp" >"$temp/figures" 2>/dev/null
    figures less "warm lookup through the engine: p50" "warm lookup through the engine, unknown key: p50" \
        "warm stage, pivot index M=64: p50" "warm stage, page and value: p50"
    figures more "build .kv + .bt + .kvei: rate" "reindex to M=64: rate" "merge: rate"
    "${bin[$side]}/icecore-figures" hot --small >"$temp/figures" 2>/dev/null
    figures more "2^20 keys, batch 2^17: updates" "2^20 keys, batch 2^9: updates" "2^24 keys, batch 2^17: updates"
}

for number in $(seq "$rounds"); do
    # The one that comes second may find the machine in another state than the first, so they change places.
    if [ $((number % 2)) = 1 ]; then order="other this"; else order="this other"; fi
    for side in $order; do
        say "round $number of $rounds: $side"
        round
    done
    cmp "$temp/other.answers" "$temp/this.answers" || { echo "the two builds answer differently" >&2; exit 1; }
done

echo "other        $commit"
echo "this         $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
echo "date         $(date -u +%Y-%m-%dT%H:%M:%SZ)"
echo "rounds       $rounds in turn, $blocks blocks of 300 changes, $entries entries"
echo "load         $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) cores"
echo
printf '%-60s %10s %10s %10s %10s %8s %8s\n' figure 'other p50' 'this p50' 'other best' 'this best' 'cost p50' best
# Values ascend within a figure and a side.
sort -t "$(printf '\t')" -k2,2 -k1,1 -k4,4g "$results" | awk -F '\t' '
    function median(side) { return (v[side, int((n[side] + 1) / 2)] + v[side, int(n[side] / 2) + 1]) / 2 }
    function best(side) { return better == "less" ? v[side, 1] : v[side, n[side]] }
    # What a figure costs: of rates the inverse.
    function cost(other, this) { return better == "less" ? this / other : other / this }
    function line() {
        if (name != "") {
            printf "%-60s %10.3f %10.3f %10.3f %10.3f %8.2f %8.2f\n", name, median("other"), median("this"), best("other"), best("this"),
                cost(median("other"), median("this")), cost(best("other"), best("this"))
        }
    }
    $2 != name { line(); delete v; delete n; name = $2; better = $3 }
    { v[$1, ++n[$1]] = $4 }
    END { line() }'
