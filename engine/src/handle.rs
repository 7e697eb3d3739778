//! How calls name a domain: by its name, or by a handle that was resolved once.

use std::borrow::Cow;
use std::sync::Arc;

use crate::commitment::DomainOrder;
use crate::domain::{Domain, DomainId};
use crate::error::Error;
use crate::options::Config;

/// A declared domain of an open archive, resolved once. [`Archive::domain`](crate::Archive::domain) and
/// [`Reader::domain`](crate::Reader::domain) give one.
///
/// Any call that takes a domain takes a handle, and spares the search for the name. For another archive than its own, the handle
/// stands for its name.
///
/// ```
/// # use icecore::{Archive, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("accounts"))?;
/// let accounts = archive.reader().domain("accounts")?;
/// let mut block = archive.begin(1)?;
/// block.put(&accounts, b"alice", b"100")?;
/// block.commit()?;
/// assert_eq!(archive.at(1)?.get(&accounts, b"alice")?, archive.at(1)?.get("accounts", b"alice")?);
/// # Ok::<(), icecore::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DomainHandle {
    id: DomainId,
    config: Arc<Config>,
}

impl DomainHandle {
    pub(crate) fn new(config: &Arc<Config>, name: &str) -> Result<Self, Error> {
        Ok(Self { id: config.domain(name)?, config: Arc::clone(config) })
    }

    /// The domain as it was declared.
    pub fn domain(&self) -> &Domain {
        &self.config.domains[self.id.index()]
    }
}

/// What names a domain in a call: a `str`, a [`String`], a [`DomainHandle`], or a reference to one of them. Sealed.
pub trait AsDomain: sealed::Known {}

impl AsDomain for str {}
impl AsDomain for String {}
impl AsDomain for DomainHandle {}
impl<D: AsDomain + ?Sized> AsDomain for &D {}

mod sealed {
    use super::DomainHandle;

    /// By what a domain is known.
    #[derive(Clone, Copy, Debug)]
    pub enum By<'d> {
        Name(&'d str),
        Handle(&'d DomainHandle),
    }

    pub trait Known {
        fn by(&self) -> By<'_>;
    }

    impl Known for str {
        fn by(&self) -> By<'_> {
            By::Name(self)
        }
    }

    impl Known for String {
        fn by(&self) -> By<'_> {
            By::Name(self)
        }
    }

    impl Known for DomainHandle {
        fn by(&self) -> By<'_> {
            By::Handle(self)
        }
    }

    impl<D: Known + ?Sized> Known for &D {
        fn by(&self) -> By<'_> {
            (**self).by()
        }
    }
}

/// The number of a domain in an archive.
///
/// # Errors
/// [`Error::UnknownDomain`] with the names there are.
#[inline]
pub(crate) fn id_of<D: AsDomain + ?Sized>(config: &Arc<Config>, domain: &D) -> Result<DomainId, Error> {
    match domain.by() {
        sealed::By::Handle(handle) if Arc::ptr_eq(&handle.config, config) => Ok(handle.id),
        sealed::By::Handle(handle) => config.domain(&handle.domain().name),
        sealed::By::Name(name) => config.domain(name),
    }
}

/// A key in the form in which it is stored, with the number of its domain.
pub(crate) type StoredKey<'k> = (DomainId, Cow<'k, [u8]>);

/// Keys in the form in which they are stored, with the numbers of their domains.
///
/// # Errors
/// As [`with_stored_key`].
pub(crate) fn stored_keys<'k>(
    config: &Arc<Config>,
    keys: &'k [(impl AsDomain, impl AsRef<[u8]>)],
) -> Result<Vec<StoredKey<'k>>, Error> {
    let stored = |(domain, key): &'k (_, _)| {
        let key = AsRef::as_ref(key);
        let (id, declared) = domain_of(config, domain, key)?;
        Ok((id, declared.stored(key)))
    };
    keys.iter().map(stored).collect()
}

/// Gives `read` a key in the form in which it is stored, with the number of its domain. On the way of every lookup: a key that is stored as
/// it is costs a comparison.
///
/// # Errors
/// [`Error::UnknownDomain`]; [`Error::KeyLength`]; those of `read`.
#[inline]
pub(crate) fn with_stored_key<D: AsDomain + ?Sized, R>(
    config: &Arc<Config>,
    domain: &D,
    key: &[u8],
    read: impl FnOnce(DomainId, &[u8]) -> Result<R, Error>,
) -> Result<R, Error> {
    let (id, declared) = domain_of(config, domain, key)?;
    if declared.order == DomainOrder::Key {
        return read(id, key);
    }
    read(id, &declared.stored(key))
}

/// A domain that can have this key.
#[inline]
fn domain_of<'c, D: AsDomain + ?Sized>(
    config: &'c Arc<Config>,
    domain: &D,
    key: &[u8],
) -> Result<(DomainId, &'c Domain), Error> {
    let id = id_of(config, domain)?;
    let declared = &config.domains[id.index()];
    declared.check_key(key)?;
    Ok((id, declared))
}

/// References to keys that [`stored_keys`] gave.
pub(crate) fn borrowed<'k>(keys: &'k [StoredKey<'_>]) -> Vec<(DomainId, &'k [u8])> {
    keys.iter().map(|(domain, key)| (*domain, &**key)).collect()
}
