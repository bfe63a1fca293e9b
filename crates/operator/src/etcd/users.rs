//! Users and roles of etcd. A role has the name of its user.
//!
//! Decides the order of the changes: a permission is granted before another is revoked, so that a user keeps the keys that it has
//! before and after. Each change may be repeated.

use etcd_client::{Permission as Granted, PermissionType, RoleRevokePermissionOptions};
use holdfast_api::user::{KeyAccess, Permission};

use super::Address;
use super::client::{CHANGE, Failure, Pool, READ, ROLE_EXISTS, USER_EXISTS, made};

/// etcd's answer about an unknown user (etcd: `ErrUserNotFound`).
const NO_USER: &str = "etcdserver: user name not found";
/// etcd's answer about an unknown role (etcd: `ErrRoleNotFound`).
const NO_ROLE: &str = "etcdserver: role name not found";

impl Pool {
    /// Whether etcd has a user or a role of this name. Both questions are entries in its raft log.
    pub(super) async fn reads_user(&self, at: &Address, name: &str) -> Result<bool, Failure> {
        let user = self.call(at, READ, |mut client| async move { client.user_get(name).await }).await.map(drop);
        let role = self.call(at, READ, |mut client| async move { client.role_get(name).await }).await.map(drop);
        Ok(exists(user, NO_USER)? || exists(role, NO_ROLE)?)
    }

    /// Makes a user with this password and a role with these permissions, or changes both.
    pub(crate) async fn put_user(
        &self,
        at: &Address,
        name: &str,
        permissions: &[Permission],
        password: &str,
    ) -> Result<(), Failure> {
        made(self.call(at, CHANGE, |mut client| async move { client.role_add(name).await }).await, ROLE_EXISTS)?;
        let has = self.call(at, READ, |mut client| async move { client.role_get(name).await }).await?.permissions();
        let wanted: Vec<Granted> = permissions.iter().map(granted).collect();
        for permission in wanted.iter().filter(|wanted| !has.iter().any(|has| same(has, wanted))) {
            let grant = |mut client: etcd_client::Client| async move {
                client.role_grant_permission(name, permission.clone()).await
            };
            self.call(at, CHANGE, grant).await?;
        }
        for permission in has.iter().filter(|has| !wanted.iter().any(|wanted| range(has) == range(wanted))) {
            let options = RoleRevokePermissionOptions::new().with_range_end(permission.range_end());
            let revoke = |mut client: etcd_client::Client| async move {
                client.role_revoke_permission(name, permission.key(), Some(options)).await
            };
            self.call(at, CHANGE, revoke).await?;
        }
        match self.call(at, CHANGE, |mut client| async move { client.user_add(name, password, None).await }).await {
            Ok(_) => {}
            Err(Failure::Refused(why)) if why == USER_EXISTS => {
                let change =
                    |mut client: etcd_client::Client| async move { client.user_change_password(name, password).await };
                self.call(at, CHANGE, change).await?;
            }
            Err(failure) => return Err(failure),
        }
        self.call(at, CHANGE, |mut client| async move { client.user_grant_role(name, name).await }).await?;
        Ok(())
    }

    /// Deletes a user and its role.
    pub(crate) async fn drop_user(&self, at: &Address, name: &str) -> Result<(), Failure> {
        made(self.call(at, CHANGE, |mut client| async move { client.user_delete(name).await }).await, NO_USER)?;
        made(self.call(at, CHANGE, |mut client| async move { client.role_delete(name).await }).await, NO_ROLE)
    }
}

fn exists(answer: Result<(), Failure>, absent: &str) -> Result<bool, Failure> {
    match answer {
        Ok(()) => Ok(true),
        Err(Failure::Refused(why)) if why == absent => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn granted(permission: &Permission) -> Granted {
    let kind = match permission.access {
        KeyAccess::Read => PermissionType::Read,
        KeyAccess::Write => PermissionType::Write,
        KeyAccess::ReadWrite => PermissionType::Readwrite,
    };
    let (key, end) = permission.range();
    Granted::new(kind, key).with_range_end(end)
}

fn range(permission: &Granted) -> (&[u8], &[u8]) {
    (permission.key(), permission.range_end())
}

/// Whether two permissions are the same. The client's own comparison ignores the end of a range.
fn same(one: &Granted, other: &Granted) -> bool {
    range(one) == range(other) && one.get_type() == other.get_type()
}
