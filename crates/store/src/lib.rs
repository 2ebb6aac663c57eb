//! Where tiered segments lie: the key layouts of storage plugins, and the objects of a store.
//!
//! Start at [`Layout`], one table that says for each known plugin how a key is made and read and which objects
//! a segment has. [`StoreUrl`] names a store; [`Store::list`] streams what lies in it, [`Store::head`] looks at
//! one object again.
//!
//! What is absent on purpose: nothing here writes or deletes, nothing judges (that is the audit crate's), and
//! no name is made fit for a terminal (that is the command's). A listing that could not see everything says so
//! entry by entry; there is no way to take it for a complete one without passing over its errors.
//!
//! # Cancel safety
//! Every future of this crate can be dropped at any time. A dropped [`Listing`] ends its walk at the next page.

mod directory;
mod layout;
mod store;
mod url;

pub use layout::{LAYOUTS, Layout, ObjectKey, ObjectRole, RoleRow, UnknownLayout};
pub use store::{HeadError, ListError, Listing, ObjectInfo, OpenError, Store};
pub use url::{StoreUrl, StoreUrlError};
