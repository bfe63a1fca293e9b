# Shared by the scripts of this folder: where things live and how they speak. Sourced, not run.
set -euo pipefail
case ${1:-} in
-h | --help)
	# What stands at the top of the script.
	awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"
	exit
	;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

# Caches live outside the checkout, so that a fresh clone on the same machine starts in seconds.
export HOLDFAST_CACHE=${HOLDFAST_CACHE:-$HOME/.cache/holdfast}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOLDFAST_CACHE/target}
export HOLDFAST_LOGS=${HOLDFAST_LOGS:-$HOLDFAST_CACHE/logs}
mkdir -p "$HOLDFAST_CACHE" "$HOLDFAST_LOGS"
target=x86_64-unknown-linux-musl
testbed=$root/tests/testbed/testbed
# A plain KUBECONFIG must never be picked up by anything below.
unset KUBECONFIG

if [ -t 2 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '%s%s%s\n' "$bold" "$*" "$plain" >&2; }
fail() { say "$*"; exit 1; }

# step NAME COMMAND...: runs it, and notes how long it took for the list of slowest steps.
step() {
	local name=$1 begun=$EPOCHREALTIME code=0
	shift
	"$@" || code=$?
	local seconds
	seconds=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
	[ -z "${HOLDFAST_STEPS:-}" ] || printf '%s\t%s\n' "$seconds" "$name" >>"$HOLDFAST_STEPS"
	if [ $code -eq 0 ]; then say "-- $name: done ($seconds s)"; else say "-- $name: FAILED ($seconds s)"; fi
	return $code
}

# install_packages PACKAGE...: installs those packages of Debian that are missing.
install_packages() {
	local package lacking=()
	for package in "$@"; do
		dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || lacking+=("$package")
	done
	[ ${#lacking[@]} -gt 0 ] || return 0
	say "installing ${lacking[*]} (usually 20 s)"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${lacking[@]}" >"$HOLDFAST_LOGS/apt-${lacking[0]}.log" 2>&1 ||
		fail "apt-get failed; see $HOLDFAST_LOGS/apt-${lacking[0]}.log"
}

# wait_for PID WHAT USUAL: waits for a process of this shell, and says every half minute that it still runs.
wait_for() {
	local pid=$1 what=$2 usual=$3 waited=0
	while kill -0 "$pid" 2>/dev/null; do
		sleep 1
		waited=$((waited + 1))
		[ $((waited % 30)) -ne 0 ] || say "$what: $waited s so far, usually $usual"
	done
	wait "$pid"
}

# The profile of test programs (Cargo.toml): dependencies as in the image, our own crates quickly compiled. Without
# optimisation a future takes more of the stack (.cargo/config.toml says the same to programs that cargo runs).
test_profile=(--profile bench --workspace)
export RUST_MIN_STACK=16777216

# test_programs [TARGET...]: compiles the test programs (all but the stories; or these targets), and prints the path of each.
# They are run as they are, not by cargo: it would put its own holdfast, of the test profile, in the place of the one that
# ships.
test_programs() {
	local targets=("$@")
	[ ${#targets[@]} -gt 0 ] || targets=(--lib --bins --tests)
	cargo test "${test_profile[@]}" "${targets[@]}" --no-run --message-format=json-render-diagnostics |
		sed -n 's/.*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1/p'
}

# folder_of PROGRAM: prints the folder of a test program's package.
folder_of() {
	local name=${1##*/}
	case $name in
	real-* | snapshot_agent-*) echo snapshot-agent ;;
	planner-*) echo crates/plan ;;
	holdfast_*)
		name=${name#holdfast_} && name=${name%-*} && name=${name//_/-}
		for name in {crates,crates/plan,snapshot-agent}/"$name"; do
			if [ -f "$name/Cargo.toml" ]; then echo "$name"; fi
		done
		;;
	*) echo . ;;
	esac
}

# run_program PROGRAM [ARGUMENT...]: runs a test program from its package's folder, as cargo would.
run_program() { (cd "$(folder_of "$1")" && "$@"); }

# The cluster that demo and end-to-end tests use: somebody's own by HOLDFAST_KUBECONFIG, else the testbed.
use_cluster() {
	if [ -n "${HOLDFAST_KUBECONFIG:-}" ]; then
		kubeconfig=$HOLDFAST_KUBECONFIG
		say "using your own cluster: context $(kubectl --kubeconfig "$kubeconfig" config current-context) of $kubeconfig"
		: "${HOLDFAST_IMAGE:?with a cluster of your own, set HOLDFAST_IMAGE to an image of Holdfast that it can pull}"
		: "${HOLDFAST_PROBE_IMAGE:?with a cluster of your own, set HOLDFAST_PROBE_IMAGE (see tests/testbed/probe)}"
		# The image has it already where one is built here.
		step "binary built" cargo build --release --bin holdfast
	else
		# Go and cargo side by side: on a bare machine each leaves a processor idle in its long last steps.
		cargo build --release --bin holdfast >&2 &
		local binary=$!
		step "testbed up" "$testbed" up
		step "binary built" wait_for "$binary" "compiling holdfast" "4 min on an idle machine"
		eval "$("$testbed" env)"
		kubeconfig=$HOLDFAST_TESTBED_KUBECONFIG
		HOLDFAST_IMAGE=$(tests/bin/image)
		HOLDFAST_PROBE_IMAGE=${HOLDFAST_PROBE_IMAGE:-localhost/holdfast-probe:1}
	fi
	export HOLDFAST_IMAGE HOLDFAST_PROBE_IMAGE
}
