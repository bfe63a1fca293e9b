//! Asks a member for the revision of its users and roles.
//!
//! This file decides the call, which etcd-client lacks: `AuthStatus`. A watch shows no change of a user, and a restore that
//! mixes the users of a snapshot with later keys has to know. A user without the right, or an etcd before 3.5, gives no answer,
//! which is no error. The reader logs in by itself, because etcd-client keeps its token.

use etcd_client::Client;
use holdfast_contract::error::{Error, Result, of_etcd};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::connect::{Dialer, in_time};

const PATH: &str = "/etcdserverpb.Auth/AuthStatus";

#[derive(Clone, PartialEq, prost::Message)]
struct AuthStatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct AuthStatusResponse {
    #[prost(uint64, tag = "3")]
    auth_revision: u64,
}

/// A connection for this call. Holds a password, so it has no `Debug`.
pub struct AuthReader {
    endpoint: String,
    grpc: Grpc<Channel>,
    client: Client,
    login: Option<(String, String)>,
    token: Option<MetadataValue<Ascii>>,
    /// Whether etcd lacks the call, or this user the right: each login costs etcd a slow hash.
    refused: bool,
}

impl AuthReader {
    /// Opens a connection of its own to the member that this client is connected to.
    pub fn open(dialer: &Dialer, endpoint: &str, client: &Client) -> Result<Self> {
        Ok(Self {
            endpoint: endpoint.to_owned(),
            grpc: Grpc::new(dialer.channel_to(endpoint)?),
            client: client.clone(),
            login: dialer.login(),
            token: None,
            refused: false,
        })
    }

    /// Returns the revision; `None`: etcd does not tell this user.
    pub async fn read(&mut self) -> Result<Option<i64>> {
        if self.refused {
            return Ok(None);
        }
        // A token that has expired is replaced once.
        for _ in 0..2 {
            self.log_in().await?;
            let answer = in_time(&self.endpoint, call(&mut self.grpc, self.token.clone())).await.map_err(of_etcd)?;
            match answer {
                Ok(answer) => return Ok(i64::try_from(answer.auth_revision).ok()),
                Err(status) if status.code() == Code::Unavailable => {
                    return Err(of_etcd(Error::transient(format!("{}: {}", self.endpoint, status.message()))));
                }
                Err(status) if matches!(status.code(), Code::PermissionDenied | Code::Unimplemented) => {
                    self.refused = true;
                    return Ok(None);
                }
                Err(status) => {
                    tracing::debug!(endpoint = self.endpoint, message = status.message(), "no revision of the users");
                    self.token = None;
                }
            }
        }
        Ok(None)
    }

    async fn log_in(&mut self) -> Result<()> {
        let (Some((name, password)), None) = (&self.login, &self.token) else { return Ok(()) };
        let mut client = self.client.auth_client();
        let logged_in = in_time(&self.endpoint, client.authenticate(name.clone(), password.clone())).await;
        // etcd without authentication needs no token.
        self.token = logged_in.ok().and_then(|answer| MetadataValue::try_from(answer.token()).ok());
        Ok(())
    }
}

/// Makes the call. The outer error is never there: it gives the call the form of etcd-client's calls.
async fn call(
    grpc: &mut Grpc<Channel>,
    token: Option<MetadataValue<Ascii>>,
) -> Result<Result<AuthStatusResponse, Status>, etcd_client::Error> {
    if let Err(error) = grpc.ready().await {
        return Ok(Err(Status::unavailable(error.to_string())));
    }
    let mut request = Request::new(AuthStatusRequest {});
    if let Some(mut token) = token {
        token.set_sensitive(true);
        request.metadata_mut().insert("authorization", token);
    }
    let codec = ProstCodec::<AuthStatusRequest, AuthStatusResponse>::default();
    Ok(grpc.unary(request, PathAndQuery::from_static(PATH), codec).await.map(tonic::Response::into_inner))
}
