#!/bin/sh
# Builds the peers of the token lock: real lock libraries, each as a program target/token_peers/<name>/peer.
# A peer that cannot be built is missing, and its test fails; the other peers are still built.
#
#   tests/interop/token_peers/build.sh [redis-py redsync redlock rslock jedis]
set -eu
cd "$(dirname "$0")"
here=$PWD
root=$(cd ../../.. && pwd)
cd "$root"
mkdir -p "${CARGO_TARGET_DIR:-target}/token_peers"
built=$(cd "${CARGO_TARGET_DIR:-target}/token_peers" && pwd)

# program NAME COMMAND...: makes the peer a script that executes this command
program() {
    script=$built/$1/peer
    shift
    {
        printf '#!/bin/sh\nexec'
        printf ' "%s"' "$@"
        printf ' "$@"\n'
    } >"$script.new"
    chmod 755 "$script.new"
    mv "$script.new" "$script"
}

redis_py() {
    # The python3 of pyenv and similar tools is a script; the environment needs the real program.
    python3 -m venv --clear "$out/venv"
    "$out/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$from/requirements.txt"
    program redis-py "$out/venv/bin/python" -u "$from/peer.py"
}

redsync() {
    (cd "$from" && GOFLAGS=-mod=readonly go build -o "$out/peer.new" .)
    mv "$out/peer.new" "$out/peer"
}

# Two peers: the current release, and the beta of the next release.
redlock() {
    cp "$from/package.json" "$from/package-lock.json" "$from/peer.js" "$out"
    mkdir -p "$built/redlock5"
    rm -f "$built/redlock5/peer"
    npm --prefix "$out" ci --ignore-scripts --no-audit --no-fund --loglevel=error >"$out/build.log"
    program redlock node "$out/peer.js" redlock
    program redlock5 node "$out/peer.js" redlock5
}

rslock() {
    cargo build --quiet --locked --manifest-path "$from/Cargo.toml" --target-dir "$out/cargo"
    program rslock "$out/cargo/debug/lockson-rslock-peer"
}

jedis() {
    mvn -B -ntp -f "$from/pom.xml" -Doutput.directory="$out/maven" package >"$out/build.log" 2>&1 ||
        { cat "$out/build.log" >&2; return 1; }
    program jedis java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
        -cp "$out/maven/classes:$(cat "$out/maven/classpath.txt")" lockson.token.Main
}

# Succeeds if the peer is newer than all of its sources.
fresh() {
    [ -x "$out/peer" ] && [ -f "$out/done" ] &&
        [ -z "$(find "$from" "$here/build.sh" -newer "$out/done" | head -n 1)" ]
}

# One peer; in a shell of its own, where -e ends it at the first failure.
if [ "${1:-}" = --one ]; then
    name=$2
    from=$here/$name
    out=$built/$name
    mkdir -p "$out"
    if fresh; then
        echo "token peers: $name is up to date"
        exit 0
    fi
    rm -f "$out/done" "$out/peer"
    touch "$out/started" # an edit during the build must count as newer
    case $name in
        redis-py) redis_py ;;
        redsync | redlock | rslock | jedis) "$name" ;;
        *) echo "token peers: no such peer: $name" >&2; exit 2 ;;
    esac
    mv "$out/started" "$out/done"
    echo "token peers: $name is built"
    exit 0
fi

[ $# -gt 0 ] || set -- redis-py redsync redlock rslock jedis
status=0
for name in "$@"; do
    sh "$here/build.sh" --one "$name" || { echo "token peers: $name could not be built" >&2; status=1; }
done
exit "$status"
