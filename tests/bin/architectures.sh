# How the program is compiled for each processor of a release. Sourced, not run; `release` decides when, and `arm64` runs the result.
# amd64 is the binary that every test runs, of musl-gcc; arm64 is linked by zig, which brings a C compiler and musl for it.

architectures=(amd64 arm64)
zig_version=0.15.2
zigbuild_version=0.24.1
zig=$HOLDFAST_CACHE/zigbuild-$zigbuild_version-$zig_version

rust_target() {
	case $1 in
	amd64) echo x86_64-unknown-linux-musl ;;
	arm64) echo aarch64-unknown-linux-musl ;;
	*) fail "no architecture $1: ${architectures[*]}" ;;
	esac
}

# binary_of ARCHITECTURE: where cargo puts it.
binary_of() { echo "$CARGO_TARGET_DIR/$(rust_target "$1")/release/holdfast"; }

# strip_of ARCHITECTURE: Debian's strip knows its own processor only.
strip_of() { if [ "$1" = arm64 ]; then echo aarch64-linux-gnu-strip; else echo strip; fi; }

# Installs what a build for arm64 needs beside tests/bin/deps: the target's library, strip, and zig with cargo-zigbuild in a
# folder of their own. pip compares the hashes and runs no code of a package.
install_cross_tools() {
	local packages=(binutils-aarch64-linux-gnu) temporary
	rustup target list --installed | grep -qx "$(rust_target arm64)" || rustup target add "$(rust_target arm64)"
	[ -x "$zig/bin/cargo-zigbuild" ] || python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
	install_packages "${packages[@]}"
	[ ! -x "$zig/bin/cargo-zigbuild" ] || return 0
	say "installing cargo-zigbuild $zigbuild_version and zig $zig_version from PyPI (usually 20 s)"
	cat >"$HOLDFAST_LOGS/zigbuild.txt" <<-END
		ziglang==$zig_version --hash=sha256:806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130
		cargo-zigbuild==$zigbuild_version --hash=sha256:238a1ab54a95053a4eadc34775c81f795a8ad75f80bfed63f3f445f518102375
	END
	# At its final place: the programs of such a folder name it. The one that cargo calls arrives last.
	rm -rf "$zig"
	python3 -m venv "$zig"
	"$zig/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes --no-deps \
		-r "$HOLDFAST_LOGS/zigbuild.txt" >"$HOLDFAST_LOGS/zigbuild.log" 2>&1 || { rm -rf "$zig" && fail "pip failed; see $HOLDFAST_LOGS/zigbuild.log"; }
}

# build_binary ARCHITECTURE: compiles what changed. HOLDFAST_COMMIT, if set, goes into the binary.
build_binary() {
	if [ "$1" = amd64 ]; then
		cargo build --release --locked --bin holdfast
		return
	fi
	install_cross_tools
	# zig and its wrappers keep what they make below the cache, too.
	CARGO_ZIGBUILD_CACHE_DIR=$zig/cache ZIG_GLOBAL_CACHE_DIR=$zig/cache PATH=$zig/bin:$PATH \
		cargo zigbuild --release --locked --bin holdfast --target "$(rust_target "$1")"
}
