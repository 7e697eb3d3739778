//! The state at a block as a table.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use icecore::{DomainHandle, DomainOrder, Error, Scan, View};

use crate::columns::{Column, Row, schema};
use crate::external;
use crate::keys::{Filter, Wanted};
use crate::rows::{RowSource, TableScan};

const COLUMNS: &[Column] = &[Column::Key, Column::Value { is_nullable: false }, Column::Block];

/// The keys of a domain with their values at the block of a view: `key`, `value`, and the `block` that wrote the value.
///
/// Rows come in the order of keys, and a plan knows that; of a domain by path they come in none, and every key is read. Comparisons of `key`
/// with constants, `key in (..)` and [`has_prefix`](crate::has_prefix()) choose what is read, and so does a limit where they are all that a
/// query filters by. `key = X'..'` is one lookup.
#[derive(Clone, Debug)]
pub struct StateTable {
    view: View,
    domain: DomainHandle,
}

impl StateTable {
    /// The table of a domain.
    ///
    /// # Errors
    /// The archive has no such domain.
    pub fn new(view: View, domain: &str) -> Result<Self> {
        let domain = view.domain(domain).map_err(external)?;
        Ok(Self { view, domain })
    }
}

/// The filters that a table of keys answers exactly.
fn filter(expression: &Expr) -> Option<Filter> {
    // The block is a column like any other here: no index finds the keys that a block wrote last.
    Filter::of(expression).filter(|filter| !matches!(filter, Filter::Blocks(..)))
}

#[async_trait::async_trait]
impl TableProvider for StateTable {
    fn schema(&self) -> SchemaRef {
        schema(COLUMNS)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|expression| pushdown(filter(expression).is_some())).collect())
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = Wanted::new(&filters.iter().filter_map(filter).collect::<Vec<_>>());
        let (view, domain) = (self.view.clone(), self.domain.clone());
        let begin = Arc::new(move || rows(&view, &domain, &wanted));
        let order = (!is_by_path(&self.domain)).then_some(Column::Key);
        TableScan { columns: COLUMNS, order, begin }.plan(projection, limit)
    }
}

/// What to tell DataFusion of a filter.
pub(crate) fn pushdown(is_exact: bool) -> TableProviderFilterPushDown {
    if is_exact { TableProviderFilterPushDown::Exact } else { TableProviderFilterPushDown::Unsupported }
}

/// Whether the keys of a domain come in the order of their paths, which no range is of.
fn is_by_path(domain: &DomainHandle) -> bool {
    domain.domain().order == DomainOrder::PathThenKey
}

fn rows(view: &View, domain: &DomainHandle, wanted: &Wanted) -> Result<RowSource, Error> {
    if let Some(keys) = wanted.keys.clone() {
        let (view, domain) = (view.clone(), domain.clone());
        return Ok(Box::new(keys.into_iter().filter_map(move |key| {
            let found = view.lookup(&domain, &key).transpose()?;
            let change = found.map(|found| found.change);
            change
                .map(|change| change.value.map(|value| Row::new(key, Some(value), change.block)))
                .transpose()
        })));
    }
    let scan = if is_by_path(domain) { Scan::all() } else { wanted.scan.clone() };
    let (entries, wanted) = (view.scan(domain, &scan)?, wanted.clone());
    let wanted_only =
        entries.filter(move |entry| entry.as_ref().map_or(true, |entry| wanted.has(&entry.key)));
    Ok(Box::new(
        wanted_only.map(|entry| entry.map(|entry| Row::new(entry.key, Some(entry.value), entry.block))),
    ))
}
