//! Users and roles of etcd. A role has the name of its user.
//!
//! Decides the order of the changes: a permission is granted before another is revoked, so that a user keeps the keys that it has
//! before and after. Each change may be repeated.

use std::collections::BTreeMap;

use etcd_client::{Client, Permission as Granted, PermissionType, RoleRevokePermissionOptions};
use holdfast_api::user::{KeyAccess, Permission};
use holdfast_plan::UserChange;

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
    pub(crate) async fn put_user(&self, at: &Address, change: &UserChange, password: &str) -> Result<(), Failure> {
        let name = change.name.as_str();
        made(self.call(at, CHANGE, |mut client| async move { client.role_add(name).await }).await, ROLE_EXISTS)?;
        self.put_role(at, name, &joined(&change.permissions)).await?;
        if change.is_new {
            // A user without a password, or with other roles, keeps them for ever.
            made(self.call(at, CHANGE, |mut client| async move { client.user_delete(name).await }).await, NO_USER)?;
        }
        match self.call(at, CHANGE, |mut client| async move { client.user_add(name, password, None).await }).await {
            Ok(_) => {}
            Err(Failure::Refused(why)) if why == USER_EXISTS => {
                if change.changes_password {
                    let set = |mut client: Client| async move { client.user_change_password(name, password).await };
                    self.call(at, CHANGE, set).await?;
                }
            }
            Err(failure) => return Err(failure),
        }
        self.call(at, CHANGE, |mut client| async move { client.user_grant_role(name, name).await }).await?;
        Ok(())
    }

    /// Gives a role these permissions and no others, and looks at the result: with several ranges of one key etcd may add a
    /// permission beside an earlier one of the same range (etcd#21845).
    async fn put_role(&self, at: &Address, name: &str, wanted: &[Granted]) -> Result<(), Failure> {
        for _ in 0..2 {
            let has = self.permissions(at, name).await?;
            for permission in wanted.iter().filter(|wanted| !has.iter().any(|has| same(has, wanted))) {
                self.grant(at, name, permission).await?;
            }
            let other = |has: &&Granted| !wanted.iter().any(|wanted| range(has) == range(wanted));
            for permission in has.iter().filter(other) {
                self.revoke(at, name, permission).await?;
            }
            let now = self.permissions(at, name).await?;
            let wrong: Vec<&Granted> =
                now.iter().filter(|now| !wanted.iter().any(|wanted| same(now, wanted))).collect();
            if wrong.is_empty() && now.len() == wanted.len() {
                return Ok(());
            }
            // etcd revokes every permission of a range.
            for permission in wrong {
                self.revoke(at, name, permission).await?;
            }
        }
        let has = self.permissions(at, name).await?;
        let right = has.len() == wanted.len() && wanted.iter().all(|wanted| has.iter().any(|has| same(has, wanted)));
        if right {
            Ok(())
        } else {
            Err(Failure::Refused(format!("the role {name} keeps other permissions than wanted")))
        }
    }

    async fn permissions(&self, at: &Address, role: &str) -> Result<Vec<Granted>, Failure> {
        Ok(self.call(at, READ, |mut client| async move { client.role_get(role).await }).await?.permissions())
    }

    async fn grant(&self, at: &Address, role: &str, permission: &Granted) -> Result<(), Failure> {
        let grant = |mut client: Client| async move { client.role_grant_permission(role, permission.clone()).await };
        self.call(at, CHANGE, grant).await.map(drop)
    }

    async fn revoke(&self, at: &Address, role: &str, permission: &Granted) -> Result<(), Failure> {
        let options = RoleRevokePermissionOptions::new().with_range_end(permission.range_end());
        let revoke = |mut client: Client| async move {
            client.role_revoke_permission(role, permission.key(), Some(options)).await
        };
        self.call(at, CHANGE, revoke).await.map(drop)
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

/// Returns the permissions as etcd has them: one for each range, with the access of all that name the range.
fn joined(permissions: &[Permission]) -> Vec<Granted> {
    let mut all = BTreeMap::<_, (bool, bool)>::new();
    for permission in permissions {
        let (read, write) = all.entry(permission.range()).or_default();
        *read |= permission.access != KeyAccess::Write;
        *write |= permission.access != KeyAccess::Read;
    }
    let granted = |((key, end), access)| {
        let kind = match access {
            (true, true) => PermissionType::Readwrite,
            (_, true) => PermissionType::Write,
            (_, false) => PermissionType::Read,
        };
        Granted::new(kind, key).with_range_end(end)
    };
    all.into_iter().map(granted).collect()
}

fn range(permission: &Granted) -> (&[u8], &[u8]) {
    (permission.key(), permission.range_end())
}

/// Whether two permissions are the same. The client's own comparison ignores the end of a range.
fn same(one: &Granted, other: &Granted) -> bool {
    range(one) == range(other) && one.get_type() == other.get_type()
}

#[cfg(test)]
mod tests {
    use holdfast_api::user::Matching;

    use super::*;

    #[test]
    fn permissions_of_one_range_are_one() {
        let of = |key: &str, matching, access| Permission { key: key.to_owned(), matching, range_end: None, access };
        let all = [
            of("/a", Matching::Prefix, KeyAccess::Read),
            of("/a", Matching::Exact, KeyAccess::Read),
            of("/a", Matching::Prefix, KeyAccess::Write),
        ];
        let joined = joined(&all);
        let kinds: Vec<_> = joined.iter().map(|it| (range(it), it.get_type())).collect();
        let (read, both) = (PermissionType::Read as i32, PermissionType::Readwrite as i32);
        assert_eq!(kinds, [((&b"/a"[..], &b""[..]), read), ((&b"/a"[..], &b"/b"[..]), both)]);
    }
}
