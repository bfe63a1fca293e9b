# How a compiled binary becomes an image: what goes in, and how it is put together. Sourced, not run; `image` decides
# when, and what it is called. The same bytes in give the same image out: tests/bin/reproducible holds it to that.

# image_context BINARY FOLDER [STRIP]: puts all that goes into the image into the folder. STRIP is a program that knows the
# binary's processor.
image_context() {
	mkdir -p "$2"
	# Line tables are for tests and profilers; nobody pulls them. The build ID goes with them: the linker makes it from
	# the debug sections too, and these name the folder of the checkout.
	"${3:-strip}" --remove-section=.note.gnu.build-id -o "$2/holdfast" "$1"
	cp /etc/ssl/certs/ca-certificates.crt "$2/"
}

# image_hash FOLDER: of everything that the image is made of. Not of the binary as compiled, which differs from one
# checkout's folder to the next in what is left out.
image_hash() { cat "$root/Containerfile" "$1/holdfast" "$1/ca-certificates.crt" | sha256sum | cut -c1-12; }

# image_archive FOLDER NAME FILE: builds the image and writes it as an archive of Docker's form.
image_archive() (
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	# The vfs driver needs no overlay support, `chroot` isolation no namespaces: it builds in any sandbox.
	storage=(--storage-driver vfs --root "$scratch/storage" --runroot "$scratch/run")
	buildah "${storage[@]}" bud --isolation chroot --timestamp 0 -q -t "$2" -f "$root/Containerfile" "$1" >/dev/null
	buildah "${storage[@]}" push -q "$2" "docker-archive:$3:$2"
)
