//! Copies the running binary, and the CA certificates of its image, to a folder that another container reads: etcd's own image
//! holds neither. In etcd's image it copies etcd and etcdutl, for a container of kube-apiserver's image.

use futures::future::BoxFuture;
use std::fs::File;
use std::io;
use std::path::Path;

use holdfast_contract::error::{Error, Result, io_error};
use holdfast_io::files;
use holdfast_io::process::{IMAGES_BIN, find_program};

/// The public CA certificates of Holdfast's image.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Name of the copy beside the program. A container without certificates names it in `SSL_CERT_FILE`.
pub const CERTIFICATES_COPY: &str = "ca-certificates.crt";

/// Copies this program to `target` atomically, executable for every user.
pub fn run(target: &Path) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let target = target.to_owned();
        let copy = move || {
            // Opens the running file itself: its path may be gone or lead to another file.
            let mut source = File::open("/proc/self/exe").map_err(io_error("opening the running program"))?;
            if target.is_dir() {
                return Err(Error::config(format!("{} is a folder: name the file", target.display())));
            }
            files::put(&target, 0o755, |file| io::copy(&mut source, file).map(drop))?;
            match File::open(CERTIFICATES) {
                // Outside the image the file may be missing; the machine's own certificates are used then.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(io_error(format!("opening {CERTIFICATES}"))(error)),
                Ok(mut certificates) => files::put(&target.with_file_name(CERTIFICATES_COPY), 0o644, |file| {
                    io::copy(&mut certificates, file).map(drop)
                }),
            }
        };
        tokio::task::spawn_blocking(copy).await.map_err(|error| holdfast_contract::error::task_error(&error))?
    })
}

/// Programs of a drill, in etcd's image.
const ETCDS: [&str; 2] = ["etcd", "etcdutl"];

/// Copies etcd and etcdutl of this image to a folder.
pub fn run_etcd(folder: &Path) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let folder = folder.to_owned();
        let copy = move || {
            ETCDS.iter().try_for_each(|name| {
                let missing =
                    || Error::config(format!("{name} is neither in PATH nor in {IMAGES_BIN}: use an image of etcd"));
                let program = find_program(name).ok_or_else(missing)?;
                let mut source = File::open(&program).map_err(io_error(format!("opening {}", program.display())))?;
                files::put(&folder.join(name), 0o755, |file| io::copy(&mut source, file).map(drop))
            })
        };
        tokio::task::spawn_blocking(copy).await.map_err(|error| holdfast_contract::error::task_error(&error))?
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use holdfast_contract::ExitClass;

    use super::*;

    #[tokio::test]
    async fn the_copy_is_whole_and_executable_and_can_be_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("holdfast");
        for _ in 0..2 {
            run(&target).await.unwrap();
        }
        assert_eq!(fs::read(&target).unwrap(), fs::read("/proc/self/exe").unwrap());
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(run(folder.path()).await.unwrap_err().class(), ExitClass::Config);
    }
}
