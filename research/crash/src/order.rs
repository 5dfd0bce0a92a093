//! Orders in which changes reach a device, and what each promises.

use platfs::{DataMode, OpenOptions, WriteOrder};

/// In which order changes reach the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    /// Through the journal, bytes of files before it.
    Ordered,
    /// Through the journal, bytes of files at any time.
    Writeback,
    /// Through the journal, bytes of files too.
    Journal,
    /// Soft updates: in phases, without a journal.
    Softdep,
    /// As `Softdep`, and names and records are stable when a call returns.
    Normal,
    /// As `Normal`, and bytes of files too.
    Sync,
}

/// Promise of a call when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Promise {
    Nothing,
    Names,
    All,
}

/// Rule for the contents of files, where the tree must be that of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// They are as old as the names, or newer.
    InOrder,
    /// They may be as old as the last promise that is theirs, and sizes too.
    Late,
    /// They are of the same moment as the names.
    Exact,
    /// Only those that were promised and not touched since are compared; sizes are as old as the names.
    Names,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 6] =
        [Order::Ordered, Order::Writeback, Order::Journal, Order::Softdep, Order::Normal, Order::Sync];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Order::Ordered => "ordered",
            Order::Writeback => "writeback",
            Order::Journal => "journal",
            Order::Softdep => "softdep",
            Order::Normal => "normal",
            Order::Sync => "sync",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn named(name: &str) -> Option<Order> {
        Order::ALL.into_iter().find(|order| order.name() == name)
    }

    /// Returns true if it is a way of soft updates.
    pub(crate) fn is_phased(self) -> bool {
        matches!(self, Order::Softdep | Order::Normal | Order::Sync)
    }

    pub(crate) fn promise(self) -> Promise {
        match self {
            Order::Normal => Promise::Names,
            Order::Sync => Promise::All,
            _ => Promise::Nothing,
        }
    }

    /// Options with it.
    pub(crate) fn of(self, options: OpenOptions) -> OpenOptions {
        match self {
            Order::Ordered => options.data(DataMode::Ordered),
            Order::Writeback => options.data(DataMode::Writeback),
            Order::Journal => options.data(DataMode::Journal),
            Order::Softdep => options.ordering(WriteOrder::Softdep),
            Order::Normal => options.ordering(WriteOrder::Normal),
            Order::Sync => options.ordering(WriteOrder::Sync),
        }
    }

    /// Returns the rule for contents on volumes with a journal.
    pub(crate) fn rule(self, is_delayed: bool) -> Rule {
        match self {
            _ if is_delayed => Rule::Late,
            Order::Writeback => Rule::Names,
            Order::Journal => Rule::Exact,
            _ => Rule::InOrder,
        }
    }
}
