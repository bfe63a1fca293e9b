//! How fast a member sends its snapshot to a client that drops the bytes: no client is faster. Over the connection that a
//! save has. `make bench-save` runs it, with the flags of `agent save`, and takes the time.

use clap::Parser as _;
use futures::TryStreamExt as _;
use holdfast_contract::SaveRequest;
use snapshot_agent::etcd::source;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    request: SaveRequest,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let request = Cli::parse().request;
    let mut source = source::choose(&request).await?;
    let (_, stream) = source.open().await?;
    let bytes = stream.try_fold(0, async |bytes: usize, piece| Ok(bytes + piece.len())).await?;
    println!("{{\"dbBytes\": {bytes}, \"storedBytes\": 0}}");
    Ok(())
}
