//! The copy of one migration, at whichever end keeps one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::{info, warn};

use super::keeper::{Holds, KeepIn, Keeper, KeptPages};
use crate::blocks::BlockNames;
use crate::record::{Account, add};
use crate::scope::Scope;

/// Keeps a migration's pages, if a copy is wanted and can be made, and accounts for them.
pub struct Keeping {
    keeper: Option<Keeper>,
    account: Arc<Account>,
}

impl Keeping {
    /// Begins a copy where a place for it and a scope are given.
    #[must_use]
    pub fn begin(place: Option<&KeepIn>, scope: Option<&Scope>, account: Arc<Account>) -> Self {
        let keeper = place.zip(scope).and_then(|(place, scope)| {
            let keeper = Keeper::begin(place, scope, Arc::clone(&account));
            keeper.inspect_err(|error| warn!("no copy of this VM is kept: {error}")).ok()
        });
        Self { keeper, account }
    }

    /// Whether a copy is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.keeper.is_some()
    }

    /// Keeps these pages, unless the disk does not keep up.
    pub fn keep(&self, pages: KeptPages) {
        let count = pages.pages.len();
        if count > 0 && self.keeper.as_ref().is_some_and(|keeper| !keeper.keep(pages)) {
            add(&self.account.counts.pages_not_kept, count);
        }
    }

    /// The migration is over: finishes the copy of a VM that is where it was to go, whose RAM
    /// blocks have these names; removes it if there are none, for the VM is not.
    pub fn end(&self, blocks: Option<BlockNames>) {
        let Some(keeper) = &self.keeper else { return };
        let Some(blocks) = blocks else {
            keeper.discard();
            return;
        };
        let counts = &self.account.counts;
        let whole =
            counts.pages_not_kept.load(Ordering::Relaxed) == 0 && !self.account.hides_pages();
        let kept = keeper.finish(blocks, if whole { Holds::All } else { Holds::Some });
        if kept > 0 {
            info!("kept a copy of {kept} pages");
        }
        counts.pages_kept.store(kept, Ordering::Relaxed);
    }
}
