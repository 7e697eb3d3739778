//! The changes of blocks as a table.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use icecore::{Error, Reader};

use crate::columns::{Column, Row, schema};
use crate::external;
use crate::keys::{Filter, Wanted};
use crate::rows::{RowSource, TableScan};
use crate::state::pushdown;

const COLUMNS: &[Column] = &[Column::Block, Column::Domain, Column::Key, Column::Before, Column::After];

/// What blocks changed, of one domain or of all: `block`, `domain`, `key`, and the value `before` the block and `after` it, null where there is
/// none. Every block that can be read has its changes, but for the lowest one of an archive that was pruned.
///
/// Rows come in the order of blocks, then domains, then keys, and a plan knows of the blocks. Comparisons of `block` with constants choose
/// what is read, and so does a limit. `key = X'..'`, `key in (..)`, comparisons of `key` and [`has_prefix`](crate::has_prefix()) choose among the
/// changes of these blocks: of one key alone a [`HistoryTable`](crate::HistoryTable) reads less.
#[derive(Clone, Debug)]
pub struct ChangesTable {
    reader: Reader,
    domain: Option<String>,
}

impl ChangesTable {
    /// The table of all domains. Each query reads what the reader sees by then.
    pub fn new(reader: Reader) -> Self {
        Self { reader, domain: None }
    }

    /// The table of one domain. The others are not read.
    ///
    /// # Errors
    /// The archive has no such domain.
    pub fn of_domain(reader: Reader, domain: &str) -> Result<Self> {
        reader.domain(domain).map_err(external)?;
        Ok(Self { reader, domain: Some(domain.to_owned()) })
    }
}

#[async_trait::async_trait]
impl TableProvider for ChangesTable {
    fn schema(&self) -> SchemaRef {
        schema(COLUMNS)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|expression| pushdown(Filter::of(expression).is_some())).collect())
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = Wanted::new(&filters.iter().filter_map(Filter::of).collect::<Vec<_>>());
        let table = self.clone();
        let begin = Arc::new(move || table.rows(&wanted));
        TableScan { columns: COLUMNS, order: Some(Column::Block), begin }.plan(projection, limit)
    }
}

impl ChangesTable {
    fn rows(&self, wanted: &Wanted) -> Result<RowSource, Error> {
        let nothing: RowSource = Box::new(std::iter::empty());
        let names: Vec<Arc<str>> =
            self.reader.domains().iter().map(|domain| Arc::from(&*domain.name)).collect();
        // All that is known: a query asks which of it lies in its range.
        let Some((lowest, head)) = self.reader.changes(..)?.range() else { return Ok(nothing) };
        let (from, to) = (wanted.blocks.0.max(lowest), wanted.blocks.1.min(head));
        if from > to || wanted.keys.as_ref().is_some_and(Vec::is_empty) {
            return Ok(nothing);
        }
        let mut changes = self.reader.changes(from..=to)?;
        if let Some(domain) = &self.domain {
            changes = changes.of_domain(&**domain)?;
        }
        let wanted = wanted.clone();
        let wanted_only =
            changes.filter(move |change| change.as_ref().map_or(true, |change| wanted.names(&change.key)));
        Ok(Box::new(wanted_only.map(move |change| {
            change.map(|change| Row {
                domain: names.get(change.domain).cloned(),
                before: change.before,
                ..Row::new(change.key, change.after, change.block)
            })
        })))
    }
}
