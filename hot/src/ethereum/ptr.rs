//! The names of nodes.

/// The name of a row: which slab, and which row of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ptr(u32);

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Branch,
    Slot,
    Account,
    /// A group of leaves of which only the reference is kept.
    Collapsed,
}

/// The bits of a row's number: 4 bits say how many children a branch has, 2 or 1 the size of a leaf.
pub(crate) const BRANCH_BITS: u32 = 26;
pub(crate) const LEAF_BITS: u32 = 29;
/// A branch has one child only while it is changed: half of the names of such branches are those of collapsed groups.
pub(crate) const GROUP_BITS: u32 = 25;
const COLLAPSED: u32 = 1 << GROUP_BITS;
const SLOT: u32 = 1 << 31;
const ACCOUNT: u32 = 1 << 30;

impl Ptr {
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn branch(children: usize, row: u32) -> Self {
        Self((children as u32 - 1) << BRANCH_BITS | row)
    }

    pub(crate) fn slot(size: usize, row: u32) -> Self {
        Self(SLOT | (size as u32) << LEAF_BITS | row)
    }

    pub(crate) fn account(is_full: bool, row: u32) -> Self {
        Self(ACCOUNT | u32::from(is_full) << LEAF_BITS | row)
    }

    pub(crate) fn collapsed(row: u32) -> Self {
        Self(COLLAPSED | row)
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::NONE => Kind::Nothing,
            Self(bits) if bits & SLOT != 0 => Kind::Slot,
            Self(bits) if bits & ACCOUNT != 0 => Kind::Account,
            Self(bits) if bits >> GROUP_BITS == 1 => Kind::Collapsed,
            _ => Kind::Branch,
        }
    }

    pub(crate) fn branch_row(self) -> (usize, u32) {
        ((self.0 >> BRANCH_BITS) as usize, self.0 & ((1 << BRANCH_BITS) - 1))
    }

    pub(crate) fn group_row(self) -> u32 {
        self.0 & (COLLAPSED - 1)
    }

    pub(crate) fn leaf_row(self) -> (usize, u32) {
        let sizes = if self.0 & SLOT != 0 { 3 } else { 1 };
        ((self.0 >> LEAF_BITS & sizes) as usize, self.0 & ((1 << LEAF_BITS) - 1))
    }
}
