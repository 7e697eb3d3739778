//! What a query says of keys and blocks, taken out of its filters.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use icecore::Scan;

use crate::prefix;

/// A filter that a table answers by itself, exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// `key = X'..'`, and the keys of an `in`.
    Keys(Vec<Vec<u8>>),
    /// `key >= X'..'`.
    KeyFrom(Vec<u8>),
    /// `key < X'..'`.
    KeyTo(Vec<u8>),
    /// `has_prefix(key, X'..')`.
    Prefix(Vec<u8>),
    /// `block` in a range, both ends included.
    Blocks(u64, u64),
}

impl Filter {
    /// The filter that an expression is, where it is one.
    pub(crate) fn of(expression: &Expr) -> Option<Self> {
        match expression {
            // What the optimiser makes of an `in` of few keys.
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                match (Self::of(left)?, Self::of(right)?) {
                    (Self::Keys(some), Self::Keys(others)) => Some(Self::Keys([some, others].concat())),
                    _ => None,
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(value, _)) => Self::compared(&column.name, *op, value),
                (Expr::Literal(value, _), Expr::Column(column)) => {
                    Self::compared(&column.name, op.swap()?, value)
                }
                _ => None,
            },
            Expr::InList(list) if !list.negated => {
                let Expr::Column(column) = &*list.expr else { return None };
                let key = |item: &Expr| match item {
                    Expr::Literal(value, _) => bytes(value),
                    _ => None,
                };
                let keys = list.list.iter().map(key).collect::<Option<Vec<_>>>()?;
                (column.name == "key").then_some(Self::Keys(keys))
            }
            Expr::ScalarFunction(call) if call.name() == prefix::NAME => match &call.args[..] {
                [Expr::Column(column), Expr::Literal(value, _)] if column.name == "key" => {
                    Some(Self::Prefix(bytes(value)?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn compared(column: &str, op: Operator, value: &ScalarValue) -> Option<Self> {
        match column {
            "key" => {
                let mut key = bytes(value)?;
                Some(match op {
                    Operator::Eq => Self::Keys(vec![key]),
                    Operator::GtEq => Self::KeyFrom(key),
                    Operator::Lt => Self::KeyTo(key),
                    // The next key in the order of bytes.
                    Operator::Gt => {
                        key.push(0);
                        Self::KeyFrom(key)
                    }
                    Operator::LtEq => {
                        key.push(0);
                        Self::KeyTo(key)
                    }
                    _ => return None,
                })
            }
            "block" => {
                let ScalarValue::UInt64(Some(block)) = *value else { return None };
                let (from, to) = match op {
                    Operator::Eq => (block, block),
                    Operator::GtEq => (block, u64::MAX),
                    Operator::LtEq => (0, block),
                    Operator::Gt => (block.checked_add(1)?, u64::MAX),
                    Operator::Lt => (0, block.checked_sub(1)?),
                    _ => return None,
                };
                Some(Self::Blocks(from, to))
            }
            _ => None,
        }
    }
}

fn bytes(value: &ScalarValue) -> Option<Vec<u8>> {
    match value {
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => Some(bytes.clone()),
        _ => None,
    }
}

/// What all filters of a query leave.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The keys that are named, in order and once each; `None` where none is.
    pub(crate) keys: Option<Vec<Vec<u8>>>,
    /// The bounds of keys.
    pub(crate) scan: Scan,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    prefixes: Vec<Vec<u8>>,
    /// The range of blocks, both ends included.
    pub(crate) blocks: (u64, u64),
}

impl Wanted {
    pub(crate) fn new(filters: &[Filter]) -> Self {
        let prefixes: Vec<_> = filters.iter().filter_map(Filter::prefix).collect();
        // Of several prefixes either the longest begins with all others, or no key has all of them; which one is checked for each row.
        let longest = prefixes.iter().max_by_key(|prefix| prefix.len());
        let scan = longest.map_or_else(Scan::all, |prefix| Scan::prefix(prefix));
        let mut wanted =
            Self { keys: None, scan, from: Vec::new(), to: None, prefixes, blocks: (0, u64::MAX) };
        for filter in filters {
            match filter {
                Filter::Keys(keys) => wanted.name(keys),
                Filter::KeyFrom(key) => {
                    wanted.scan = wanted.scan.from(key);
                    wanted.from = wanted.from.max(key.clone());
                }
                Filter::KeyTo(key) => {
                    wanted.scan = wanted.scan.to(key);
                    wanted.to = Some(wanted.to.map_or_else(|| key.clone(), |to| to.min(key.clone())));
                }
                Filter::Prefix(_) => {}
                Filter::Blocks(from, to) => {
                    wanted.blocks = (wanted.blocks.0.max(*from), wanted.blocks.1.min(*to));
                }
            }
        }
        let mut keys = wanted.keys.take();
        if let Some(keys) = &mut keys {
            keys.retain(|key| wanted.has(key));
        }
        wanted.keys = keys;
        wanted
    }

    fn name(&mut self, keys: &[Vec<u8>]) {
        let mut named = keys.to_vec();
        named.sort();
        named.dedup();
        if let Some(before) = &self.keys {
            named.retain(|key| before.contains(key));
        }
        self.keys = Some(named);
    }

    /// Whether a key is one of those that are named, where any are, and within the bounds.
    pub(crate) fn names(&self, key: &[u8]) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.binary_search_by(|named| named.as_slice().cmp(key)).is_ok())
            && self.has(key)
    }

    /// Whether a key is within the bounds.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key
            && self.to.as_deref().is_none_or(|to| key < to)
            && self.prefixes.iter().all(|prefix| key.starts_with(prefix))
    }
}

impl Filter {
    fn prefix(&self) -> Option<Vec<u8>> {
        match self {
            Self::Prefix(prefix) => Some(prefix.clone()),
            _ => None,
        }
    }
}
