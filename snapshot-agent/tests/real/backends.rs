//! Every kind of store with a real server, behind one interface: access for tests that bypasses the agent.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use holdfast_contract::StoreFlags;

use crate::support::{Running, S3, bin, eventually, files, free_port};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder};
use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// A store with a bucket, and independent access to the bucket.
pub(crate) struct Backend {
    /// Name for messages.
    pub(crate) name: &'static str,
    /// Flags with the right credentials.
    pub(crate) flags: StoreFlags,
    /// Flags with wrong credentials; `None` for a folder.
    pub(crate) wrong: Option<StoreFlags>,
    /// Flags of a bucket that does not exist.
    pub(crate) missing: StoreFlags,
    /// Flags of an address without a listener; `None` for a folder.
    pub(crate) unreachable: Option<StoreFlags>,
    /// Source of the list of parts that the server keeps of unfinished uploads.
    parts: Parts,
    hands: Hands,
    _server: Option<Running>,
    folder: TempDir,
    s3: Option<S3>,
}

enum Hands {
    Folder(PathBuf),
    Store(Arc<dyn ObjectStore>),
}

enum Parts {
    /// Files that the server keeps outside the prefix, or temporary files.
    Files(PathBuf),
    /// Blocks in Azurite's own database, which it writes every few seconds.
    Books(PathBuf),
}

impl Backend {
    /// The S3 server; panics for other kinds.
    pub(crate) const fn server(&self) -> &S3 {
        self.s3.as_ref().unwrap()
    }

    /// Starts all kinds, each with a server of its own.
    pub(crate) async fn all() -> Vec<Self> {
        vec![Self::folder(), Self::s3().await, Self::azure().await]
    }

    fn folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| StoreFlags { url: format!("file://{path}"), ..StoreFlags::default() };
        let path = folder.path().to_owned();
        Self {
            name: "folder",
            flags: at(path.to_str().unwrap()),
            wrong: None,
            missing: at("/nonexistent/mount"),
            unreachable: None,
            parts: Parts::Files(path.clone()),
            hands: Hands::Folder(path),
            _server: None,
            folder,
            s3: None,
        }
    }

    pub(crate) async fn s3() -> Self {
        holdfast_io::crypto::install_crypto();
        let s3 = S3::start().await;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("accessKeyID"), "key").unwrap();
        fs::write(folder.path().join("secretAccessKey"), "canary").unwrap();
        let hands = hands(&s3);
        let flags = s3.flags();
        let nobody = Some(format!("http://127.0.0.1:{}", free_port()));
        Self {
            name: "versitygw",
            wrong: Some(StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..flags.clone() }),
            missing: StoreFlags { url: "s3://nobody-has-this/pre/fix".to_owned(), ..flags.clone() },
            unreachable: Some(StoreFlags { s3_endpoint: nobody, ..flags.clone() }),
            flags,
            parts: Parts::Files(s3.folder.path().join("buckets/bkt")),
            hands: Hands::Store(Arc::new(hands)),
            _server: None,
            folder,
            s3: Some(s3),
        }
    }

    pub(crate) async fn azure() -> Self {
        holdfast_io::crypto::install_crypto();
        let folder = tempfile::tempdir().unwrap();
        // base64; Azurite accepts any key that it is configured with.
        let (account, key, other) = ("account", "c2VjcmV0LWtleQ==", "Y2FuYXJ5LWtleQ==");
        let port = free_port();
        let log = fs::File::create(folder.path().join("azurite.log")).unwrap();
        let mut command = azurite();
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--location"]);
        command.arg(folder.path().join("azurite"));
        command.args(["--skipApiVersionCheck", "--silent", "--disableTelemetry"]);
        command.env("AZURITE_ACCOUNTS", format!("{account}:{key}"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let server = Running(command.spawn().unwrap());
        let address = format!("127.0.0.1:{port}");
        eventually("Azurite's port", async || TcpStream::connect(&address).await.ok()).await;
        let endpoint = format!("http://{address}/{account}");
        make_container(&format!("{endpoint}/backups?restype=container"), account, key).await;
        let hands = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_access_key(key)
            .with_container_name("backups")
            .with_endpoint(endpoint.clone())
            .with_allow_http(true)
            .build()
            .unwrap();
        let credentials = |name: &str, key: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("accountName"), format!("{account}\n")).unwrap();
            fs::write(path.join("accountKey"), format!("{key}\n")).unwrap();
            Some(path)
        };
        let flags = StoreFlags {
            url: "azure://backups/pre/fix".to_owned(),
            azure_endpoint: Some(endpoint),
            credentials_dir: credentials("right", key),
            ..StoreFlags::default()
        };
        let nobody = Some(format!("http://127.0.0.1:{}/{account}", free_port()));
        Self {
            name: "Azurite",
            wrong: Some(StoreFlags { credentials_dir: credentials("wrong", other), ..flags.clone() }),
            missing: StoreFlags { url: "azure://nobody-has-this/pre/fix".to_owned(), ..flags.clone() },
            unreachable: Some(StoreFlags { azure_endpoint: nobody, ..flags.clone() }),
            flags,
            parts: Parts::Books(folder.path().join("azurite/__azurite_db_blob__.json")),
            hands: Hands::Store(Arc::new(hands)),
            _server: Some(server),
            folder,
            s3: None,
        }
    }

    /// Path of a key on the server, prefix included.
    fn at(&self, key: &str) -> String {
        match self.hands {
            Hands::Folder(_) => key.to_owned(),
            Hands::Store(_) => format!("pre/fix/{key}"),
        }
    }

    /// Every object in the whole store: objects below the prefix by their path in it, others by their whole path.
    pub(crate) async fn objects(&self) -> Vec<String> {
        let mut all = match &self.hands {
            Hands::Folder(path) => files(path),
            Hands::Store(store) => {
                let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
                listed.iter().map(|object| object.location.to_string()).collect()
            }
        };
        for object in &mut all {
            *object = object.strip_prefix("pre/fix/").unwrap_or(object).to_owned();
        }
        all.sort();
        all
    }

    /// Data that the server keeps of unfinished uploads, by its own names, for messages.
    pub(crate) fn parts(&self) -> Vec<String> {
        match &self.parts {
            Parts::Files(path) => {
                let all = files(path).into_iter();
                all.filter(|file| file.contains(".upload-") || file.contains("multipart")).collect()
            }
            Parts::Books(path) => {
                let books: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                let collections = books["collections"].as_array().unwrap();
                let blocks = collections.iter().find(|c| c["name"] == "$BLOCKS_COLLECTION$").unwrap();
                blocks["data"].as_array().unwrap().iter().map(|block| block["blobName"].to_string()).collect()
            }
        }
    }

    pub(crate) async fn put(&self, key: &str, content: &str) {
        match &self.hands {
            Hands::Folder(path) => {
                let file = path.join(key);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, content).unwrap();
            }
            Hands::Store(store) => {
                store.put(&Path::parse(self.at(key)).unwrap(), content.to_owned().into()).await.unwrap();
            }
        }
    }

    pub(crate) async fn get(&self, key: &str) -> Bytes {
        match &self.hands {
            Hands::Folder(path) => fs::read(path.join(key)).unwrap().into(),
            Hands::Store(store) => store.get(&Path::parse(self.at(key)).unwrap()).await.unwrap().bytes().await.unwrap(),
        }
    }

    pub(crate) async fn delete(&self, key: &str) {
        match &self.hands {
            Hands::Folder(path) => fs::remove_file(path.join(key)).unwrap(),
            Hands::Store(store) => store.delete(&Path::parse(self.at(key)).unwrap()).await.unwrap(),
        }
    }

    /// Flags of the Azure store, with a signature in place of its key.
    pub(crate) fn with_signature(&self) -> StoreFlags {
        /// Azure: "Create an account SAS", version 2020-12-06 and later.
        const SIGN: &str = "const [key] = process.argv.slice(1), until = '2099-01-01T00:00:00Z';
            const said = ['account', 'rwdlac', 'b', 'sco', '', until, '', '', '2023-11-03', '', ''].join('\\n');
            const mac = require('crypto').createHmac('sha256', Buffer.from(key, 'base64')).update(said).digest('base64');
            console.log('?sv=2023-11-03&ss=b&srt=sco&sp=rwdlac&se=' + until + '&sig=' + encodeURIComponent(mac));";
        let folder = self.scratch().join("signed");
        fs::create_dir(&folder).unwrap();
        let key = fs::read_to_string(self.flags.credentials_dir.as_ref().unwrap().join("accountKey")).unwrap();
        let signed = Command::new("node").args(["-e", SIGN, key.trim()]).output().unwrap();
        fs::write(folder.join("sasToken"), signed.stdout).unwrap();
        StoreFlags { azure_account: Some("account".to_owned()), credentials_dir: Some(folder), ..self.flags.clone() }
    }

    /// versitygw's metadata of an object: the attributes of its file.
    pub(crate) fn attributes(&self, key: &str, name: &str) -> String {
        let file = self.s3.as_ref().unwrap().file(key, name);
        let mut names = vec![0; 4096];
        let length = rustix::fs::listxattr(&file, &mut names[..]).unwrap();
        let mut about = String::new();
        for attribute in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let length = rustix::fs::getxattr(&file, attribute, &mut value[..]).unwrap();
            about += &format!("{}={}\n", String::from_utf8_lossy(attribute), String::from_utf8_lossy(&value[..length]));
        }
        about
    }

    /// Folder for scratch files, which goes with the store.
    pub(crate) fn scratch(&self) -> &std::path::Path {
        self.folder.path()
    }
}

/// Azurite's blob service: `HOLDFAST_AZURITE` names its program; otherwise it is beside the other test programs.
fn azurite() -> Command {
    let program = std::env::var_os("HOLDFAST_AZURITE").map_or_else(|| bin("azurite-blob"), PathBuf::from);
    assert!(
        program.exists(),
        "{} is missing: `make test` installs it, or `eval \"$(tests/bin/stores)\"` here",
        program.display()
    );
    let mut node = Command::new("node");
    node.arg(program);
    node
}

/// Creates a container. object_store cannot create containers, but it signs the request.
async fn make_container(url: &str, account: &str, key: &str) {
    let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(key).unwrap());
    let client = ReqwestConnector::default().connect(&ClientOptions::new().with_allow_http(true)).unwrap();
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().unwrap();
    *request.method_mut() = "PUT".parse().unwrap();
    AzureAuthorizer::new(&credential, account).try_authorize(&mut request).unwrap();
    let answer = client.execute(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 201, "{answer:?}");
}

/// An independent client of the bucket.
pub(crate) fn hands(s3: &S3) -> AmazonS3 {
    holdfast_io::crypto::install_crypto();
    AmazonS3Builder::new()
        .with_bucket_name("bkt")
        .with_endpoint(format!("http://{}", s3.address))
        .with_region("us-east-1")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_allow_http(true)
        .with_disable_bulk_delete(true)
        .build()
        .unwrap()
}
