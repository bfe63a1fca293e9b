# A CycloneDX 1.5 document of one binary, from cargo's own answers. `release` gives the inputs:
#   the input     cargo metadata --filter-platform TARGET --filter-platform HOST
#   $linked       packages of `cargo tree` whose code is in the binary, a line "name vVERSION" each
#   $compiled     the same with macros and build scripts, which run while it is compiled
#   $sums         lines "name VERSION SHA256" of Cargo.lock
#   $program      {version, commit, architecture, target, time, sha256, rustc, certificates: {version, sha256}}

def lines: split("\n") | map(select(length > 0) | split(" "));
def package_url: "pkg:cargo/\(.name)@\(.version)";
def licence:
	if .license then [{expression: (.license | gsub("/"; " OR "))}]
	elif .license_file then [{license: {name: "file \(.license_file) of the package"}}]
	else [] end;

($linked | lines | map({key: "\(.[0]) \(.[1][1:])", value: true}) | from_entries) as $in_binary
| ($compiled | lines | map({key: "\(.[0]) \(.[1][1:])", value: true}) | from_entries) as $used
| ($sums | lines | map({key: "\(.[0]) \(.[1])", value: .[2]}) | from_entries) as $sum
| ([.packages[] | {key: .id, value: .}] | from_entries) as $of
| [.packages[] | select($used["\(.name) \(.version)"] and .name != "holdfast")] as $parts
| ($used | keys - [$parts[] | "\(.name) \(.version)"] | map(select(startswith("holdfast ") | not))) as $unknown
| if $unknown != [] then error("cargo metadata does not know \($unknown)") else . end
| {
	bomFormat: "CycloneDX",
	specVersion: "1.5",
	version: 1,
	metadata: {
		timestamp: $program.time,
		component: {
			type: "application",
			"bom-ref": "holdfast",
			name: "holdfast",
			version: $program.version,
			licenses: [{license: {id: "Apache-2.0"}}],
			hashes: [{alg: "SHA-256", content: $program.sha256}],
			properties: [
				{name: "holdfast:commit", value: $program.commit},
				{name: "holdfast:architecture", value: $program.architecture},
				{name: "holdfast:target", value: $program.target}
			]
		}
	},
	components: ([
		$parts[]
		| "\(.name) \(.version)" as $key
		| {
			type: "library",
			"bom-ref": package_url,
			name,
			version,
			description: (.description // "" | gsub("\\s+"; " ") | sub(" $"; "")),
			scope: (if $in_binary[$key] then "required" else "excluded" end),
			licenses: licence,
			hashes: (if $sum[$key] then [{alg: "SHA-256", content: $sum[$key]}] else [] end),
			purl: (if .source then package_url else null end),
			externalReferences: (if .source and .repository then [{type: "vcs", url: .repository}] else [] end)
		}
		| with_entries(select(.value != null and .value != [] and .value != ""))
	] + [
		{
			type: "library",
			"bom-ref": "rust-std",
			name: "rust-std",
			version: $program.rustc,
			description: "Rust's standard library for \($program.target), with the C library musl",
			scope: "required",
			licenses: [{expression: "MIT OR Apache-2.0"}]
		},
		{
			type: "file",
			"bom-ref": "ca-certificates",
			name: "ca-certificates.crt",
			version: $program.certificates.version,
			description: "CA certificates of Debian's package ca-certificates; in the image, not in the binary",
			scope: "required",
			licenses: [{license: {id: "MPL-2.0"}}],
			hashes: [{alg: "SHA-256", content: $program.certificates.sha256}]
		}
	] | sort_by(."bom-ref")),
	dependencies: [
		.resolve.nodes[]
		| $of[.id] as $package
		| select($used["\($package.name) \($package.version)"])
		| {
			ref: (if $package.name == "holdfast" then "holdfast" else ($package | package_url) end),
			dependsOn: ([
				.deps[]
				| select(any(.dep_kinds[]; .kind != "dev"))
				| $of[.pkg]
				| select($used["\(.name) \(.version)"])
				| package_url
			] + (if $package.name == "holdfast" then ["rust-std", "ca-certificates"] else [] end) | unique)
		}
	] | sort_by(.ref)
}
