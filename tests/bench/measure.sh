# Shared by the scripts that measure. Sourced, not run.
. "$(dirname "${BASH_SOURCE[0]}")/../bin/common.sh"

# Of numbers, one on a line.
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
words() { tr ' ' '\n' <<<"$1" | grep .; }
# The first value of this name in JSON.
field() { sed -n "s/.*\"$1\": *\"\\{0,1\\}\\([^\",}]*\\).*/\\1/p" | head -n 1; }

port() { # a port of loopback that nobody listens on, from NUMBER on
	local port=$1
	while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
	echo "$port"
}

ended() {
	[ ${#begun[@]} -eq 0 ] || kill "${begun[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}

# on_loopback NAME: the binary that is measured, and a folder for the run, which goes with the script and with what it has
# `begun`. Then begin_s3 and begin_etcd can be asked.
on_loopback() {
	tests/bin/deps
	"$testbed" build
	eval "$("$testbed" env)"
	cargo build --release --bin holdfast >&2
	holdfast=$CARGO_TARGET_DIR/$target/release/holdfast
	runs=${RUNS:-5}
	[ -x /usr/bin/time ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq time >/dev/null
	work=$(mktemp -d "$HOLDFAST_CACHE/$1.XXXXXX")
	begun=()
	trap ended EXIT
	client=$(port 23790) peer=$(port 25790) s3=$(port 26790)
}

# An S3 server with the bucket `backups`, and the agent's flags for it in `bucket`.
begin_s3() {
	mkdir -p "$work/s3/backups" "$work/credentials"
	echo key >"$work/credentials/accessKeyID"
	echo secret >"$work/credentials/secretAccessKey"
	versitygw --access key --secret secret --quiet --port "127.0.0.1:$s3" posix "$work/s3" >"$work/s3.log" 2>&1 &
	begun+=($!)
	bucket=(--s3-endpoint "http://127.0.0.1:$s3" --s3-force-path-style --credentials-dir "$work/credentials")
}

# begin_etcd MIB URLS MORE...: an etcd with so much in it, listening at these besides $client. SHARE: how many percent of
# each value do not compress.
begin_etcd() {
	local mib=$1 urls=$2 share=${SHARE:-50}
	shift 2
	etcd --name bench --data-dir "$work/data" --quota-backend-bytes $((16 << 30)) --unsafe-no-fsync --log-level error \
		--listen-client-urls "http://127.0.0.1:$client$urls" --advertise-client-urls "http://127.0.0.1:$client" \
		--listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
		--initial-cluster "bench=http://127.0.0.1:$peer" "$@" >"$work/etcd.log" 2>&1 &
	etcd=$!
	begun+=("$etcd")
	until etcdctl --endpoints "127.0.0.1:$client" endpoint health >/dev/null 2>&1; do sleep 0.2; done
	say "writing $mib MiB in values of 8 KiB, $share % of which does not compress"
	holdfast-probe bulk --endpoint "http://127.0.0.1:$client" --bytes "${mib}MiB" --value-bytes 8192 --random "$share" >/dev/null
}

end_etcd() {
	kill "$etcd"
	wait "$etcd" 2>/dev/null || true
	rm -rf "$work/data"
}
